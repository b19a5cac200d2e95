"""Sources that are not what they should be: columns are nowhere, rows can't be read, nothing is kept."""

import gzip
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from one_line import only_line

from resources.loopback_hub import LoopbackHub

C4_CARD = """---
license: odc-by
configs:
- config_name: en
  data_files:
  - split: train
    path: en/c4-train.*.json.gz
  - split: validation
    path: en/c4-validation.*.json.gz
---
"""
Typed = subprocess.CompletedProcess[str]
Corpusmill = Callable[..., Typed]
Wrong = Callable[..., tuple[int, str]]


def test_a_column_that_no_document_has_a_value_for_is_a_warning(corpusmill: Corpusmill, work: Path) -> None:
    columns = ("--text-column", "body.text", "--license-column", "licens")
    common = ("--input", "notes/*.jsonl", "--out-dir", "misspelt", "--domain", "d", "--source", "n")

    result = corpusmill("stage-a", "normalize", *common, *columns, cwd=work)

    assert result.returncode == 0, result.stderr
    assert "named_columns_have_values: WARNING: no document has a value for `licens`: is it misspelt?" in result.stderr


def test_a_text_column_that_no_row_has_names_those_there_are(wrong: Wrong, work: Path) -> None:
    status, line = wrong("normalize", "--input", "notes/*.jsonl", "--out-dir", "bad", "--domain", "d", "--source", "n")

    assert status == 2
    assert line == (
        f"{work}/bad/stage_a/normalized/n: no row has a text in a column `text`; "
        "line 1 (byte 0) of 0.jsonl has body, key, license; set --text-column to the column that holds the text"
    )


def test_compressed_json_lines_of_a_hub_are_read_as_parquet_is(corpusmill: Corpusmill, tmp_path: Path) -> None:
    folder = tmp_path / "hub" / "datasets" / "allenai" / "c4"
    (folder / "en").mkdir(parents=True)
    (folder / "README.md").write_text(C4_CARD)
    for split in ("train", "validation"):
        rows = [{"text": f"{split} page {number}.", "url": "http://a", "timestamp": "2019"} for number in range(50)]
        content = "".join(json.dumps(row) + "\n" for row in rows).encode()
        (folder / "en" / f"c4-{split}.00000-of-00001.json.gz").write_bytes(gzip.compress(content))
    words = ("hf-stream", "--source", "allenai/c4", "--config-name", "en", "--max-documents", "30", "--out-dir", "out")

    with LoopbackHub(tmp_path / "hub") as hub:
        result = corpusmill("stage-a", *words, cwd=tmp_path, env={"HF_ENDPOINT": hub.endpoint})

    assert result.returncode == 0, result.stderr
    assert "30 rows in = 30 documents" in result.stdout
    recipe = (tmp_path / "out" / "recipes" / "c4-en.yaml").read_text()
    assert "en/c4-train.*.json.gz" in recipe and "license_tag: odc-by" in recipe


def test_bad_rows_are_not_told_to_be_tried_again(corpusmill: Corpusmill, work: Path) -> None:
    (work / "halves").mkdir()
    (work / "halves" / "0.jsonl").write_text('{"text": "a whole row"}\n{"text": "half a row"\n')
    words = ("--input", "halves/*.jsonl", "--out-dir", "bad_rows", "--domain", "d", "--source", "n")

    result = corpusmill("stage-a", "normalize", *words, cwd=work)

    assert result.returncode == 1
    line = only_line(result)
    assert "1 of 2 rows are rejected (1 not_json), above --max-reject-fraction 0.001" in line
    assert "(the first: 0.jsonl line 2 (byte 24): not_json" in line
    assert "to go on" not in result.stderr


@pytest.mark.slow
def test_a_source_that_its_filters_empty_does_not_keep_the_others_from_theirs(
    corpusmill: Corpusmill, typed: dict[str, Typed], work: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    shutil.copytree(work / "out" / "stage_a" / "normalized", out / "stage_a" / "normalized")
    (tmp_path / "long.yaml").write_text("length: {min_words: 50}\n")
    words = ("--filters", tmp_path / "long.yaml", "--source", "notes", "--source", "wikipedia")

    result = corpusmill("stage-a", "filter", *words, "--out-dir", out)

    assert result.returncode == 1
    assert only_line(result) == (
        f"{out}/recipes/filter-long.yaml: 1 of 2 sources failed: notes; "
        "the lines that begin with FAILED say why; the others are built"
    )
    [failed] = [line for line in result.stderr.splitlines() if line.startswith("FAILED ")]
    assert failed.startswith("FAILED notes: ") and failed.endswith("loosen its filters, or leave the source out")
    assert "24 rows in = 24 documents" in result.stdout
    assert "to go on" not in result.stderr
