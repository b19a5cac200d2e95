"""Sources that are not what they should be: columns are nowhere, rows can't be read, nothing is kept."""

import gzip
import json
import shutil
from pathlib import Path

import pytest
import yaml
from answers import Corpusmill, Typed, Wrong, only_line

from pipeline_assets.demo.loopback_hub import LoopbackHub

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
        f"{out}/recipes/filter-long.yaml: 1 of 2 artifacts failed: stage_a/filtered/notes; "
        "the lines that begin with FAILED say why; what isn't made from them is built"
    )
    [failed] = [line for line in result.stderr.splitlines() if line.startswith("FAILED ")]
    assert failed.startswith("FAILED stage_a/filtered/notes: ")
    assert failed.endswith("loosen its filters, or leave the source out")
    assert "24 rows in = 24 documents" in result.stdout
    assert "to go on" not in result.stderr


def test_a_config_that_does_not_exist_names_the_nearest(wrong: Wrong) -> None:
    status, line = wrong("hf-stream", "--source", "fineweb-2", "--config-name", "eng_Lat", "--out-dir", "bad")

    assert status == 2
    assert "there is no config 'eng_Lat' among 3; nearest: eng_Latn" in line


@pytest.mark.slow
def test_a_report_on_what_is_no_source(wrong: Wrong, typed: dict[str, Typed]) -> None:
    status, line = wrong("report", "--input", "out/stage_a/raw/*", "--out", "bad/report")

    assert status == 2
    assert "this is a stage_a/raw; give normalised or filtered sources" in line


@pytest.mark.slow
def test_a_filter_file_that_is_not_there_or_has_an_unknown_rule(
    wrong: Wrong, typed: dict[str, Typed], work: Path
) -> None:
    (work / "misspelt.yaml").write_text("lenght: {min_words: 10}\n")

    missing = wrong("filter", "--filters", "non.yaml", "--out-dir", "out")
    misspelt = wrong("filter", "--filters", "misspelt.yaml", "--out-dir", "out")

    assert missing == (2, "non.yaml: there is no such filter file; there are misspelt, web")
    assert misspelt == (2, "misspelt.yaml: unknown key `lenght`; did you mean `length`?")


@pytest.mark.slow
def test_an_id_that_no_source_has(corpusmill: Corpusmill, typed: dict[str, Typed], work: Path) -> None:
    result = corpusmill("stage-a", "why", "nobody", "--data", work / "out")

    assert result.returncode == 1
    assert "has a document 'nobody'" in result.stderr


def test_a_streamed_source_is_normalised_into_the_same_folder(
    corpusmill: Corpusmill, work: Path, tmp_path: Path, hub: LoopbackHub
) -> None:
    env = {"HF_ENDPOINT": hub.endpoint}
    streamed = corpusmill("stage-a", "hf-stream", "--source", "fineweb-edu", "--out-dir", tmp_path, env=env)
    assert streamed.returncode == 0, streamed.stderr
    shards = tmp_path / "stage_a" / "normalized" / "fineweb-edu" / "shards" / "*.jsonl.zst"
    words = ("stage-a", "normalize", "--input", shards, "--out-dir", tmp_path, "--source", "fineweb-edu", "--domain")

    done = corpusmill(*words, "web", env=env)
    assert done.returncode == 0, done.stderr
    assert "fineweb-edu is normalised already" in done.stderr and done.stdout == streamed.stdout
    other = corpusmill(*words, "books", env=env)
    assert other.returncode == 2 and "--domain: the documents are sealed with 'web', got 'books'" in other.stderr


def test_an_extraction_without_a_licence_is_unknown_with_a_warning(
    corpusmill: Corpusmill, work: Path, tmp_path: Path
) -> None:
    done = corpusmill("stage-a", "ingest-wikipedia", "--input", work / "extracted", "--out-dir", tmp_path)

    assert done.returncode == 0, done.stderr
    assert "warning: the licence is unknown" in done.stderr
    recipe = yaml.safe_load((tmp_path / "recipes" / "wikipedia.yaml").read_text())
    assert recipe["sources"][0]["license_tag"] == "unknown"


def test_a_recipe_of_any_file_name_is_run_and_kept_under_its_own(
    corpusmill: Corpusmill, work: Path, tmp_path: Path
) -> None:
    content = yaml.safe_load((work / "out" / "recipes" / "stage_a_v1.yaml").read_text()) | {"name": "My_Sources"}
    content["sources"][0]["path"] = str(work / "out" / content["sources"][0]["path"])
    (tmp_path / "Any Name.yml").write_text(yaml.safe_dump(content))

    words = ("stage-a", "ingest-manifest", "--manifest", "Any Name.yml", "--out-dir", "out")
    done = corpusmill(*words, cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert "`name` is folded to lower case: My_Sources becomes my_sources" in done.stderr
    assert (tmp_path / "out/recipes/my_sources.yaml").read_bytes() == (tmp_path / "Any Name.yml").read_bytes()
    listed = corpusmill("recipes", "--data", "out", cwd=tmp_path)
    assert "my_sources" in listed.stdout and "can't be read" not in listed.stdout
    (tmp_path / "out/recipes/my_sources.yaml").rename(tmp_path / "out/recipes/others.yaml")
    by_name = corpusmill("plan", "others", "--data", "out", cwd=tmp_path)
    assert by_name.returncode == 2 and "the file is others, its `name` is My_Sources" in by_name.stderr


def test_a_filter_of_configs_warns_of_names_in_other_languages(
    corpusmill: Corpusmill, work: Path, hub: LoopbackHub
) -> None:
    env = {"HF_ENDPOINT": hub.endpoint}
    done = corpusmill("stage-a", "hf-configs", "--dataset", "fineweb-2", "--filter", "beng", env=env, cwd=work)
    assert done.stdout.split() == ["asm_Beng", "ben_Beng"] and "use --lang" in done.stderr
