"""Rows that the commands of stage 2 read, filter and write."""

import glob
import gzip
import json
import os
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from command_results import Corpusmill
from stage2_build import CODE, WEB, recipe_with

from pipeline_assets.demo.loopback_hub import LoopbackHub

pytest.importorskip("py3langid", reason="needs the extra `languages`")
_SHARDS = {
    "tokenizer": {"kind": "trained", "sources": {"web": "1"}, "sample_bytes": 20_000, "vocab_size": 150},
    "dedup": None,
    "shards": {"sources": {"web": "1"}, "seq_len": 64, "rows_per_shard": 16},
    "segments": None,
}


def test_raw_writes_rows_their_notes_and_a_plain_copy(hub: LoopbackHub, tmp_path: Path, typed: Corpusmill) -> None:
    plain = tmp_path / "data" / "raw" / "web.ndjsonl"
    options = ("--dataset", WEB, "--limit", 20, "--output", plain, "--license", "odc-by", "--out-dir", tmp_path)

    typed("stage2", "raw", *options)

    rows = [json.loads(line) for line in plain.read_text().splitlines()]
    assert len(rows) == 20 and rows[0]["license_tag"] == "odc-by"
    folder = tmp_path / "stage2" / "raw-web" / "raw_corpus" / "web"
    assert {"README.md", "DATASET_CARD.md", "LICENSES.md"} <= set(os.listdir(folder))
    assert (tmp_path / "recipes" / "raw-web.yaml").exists()
    assert "current" in typed("run", "raw-web", "--data", tmp_path).stdout


def test_another_licence_than_the_cards_is_a_warning(hub: LoopbackHub, tmp_path: Path, typed: Corpusmill) -> None:
    options = ("--limit", 20, "--output", tmp_path / "web.ndjsonl", "--license", "mit", "--out-dir", tmp_path)

    done = typed("stage2", "raw", "--dataset", WEB, *options)

    assert "licence_agrees_with_card: WARNING: the dataset's card states odc-by, the recipe mit" in done.stderr


def test_raw_without_a_licence_is_refused_with_the_option(hub: LoopbackHub, tmp_path: Path, typed: Corpusmill) -> None:
    typed("stage2", "raw", "--dataset", CODE, "--text-column", "content", "--out-dir", tmp_path)  # its rows have one

    folder, rows_file = hub.folder / "datasets" / "maker" / "bare", tmp_path / "accepted/rows.jsonl.gz"
    folder.mkdir(exist_ok=True)
    (folder / "rows.jsonl").write_text('{"text": "A row says nothing of its licence."}\n')
    command, options = ("stage2", "raw", "--dataset", "maker/bare"), ("--output", rows_file, "--license", "unknown")
    with LoopbackHub(hub.folder) as served:
        env = served.client_environment()
        refused = typed(*command, "--out-dir", tmp_path / "bare", env=env, status=2)
        accepted = typed(*command, "--out-dir", tmp_path / "accepted", *options, env=env)
    assert "--license: no licence is set for bare" in refused.stderr and refused.stderr.count("\n") <= 3
    assert "documents_have_licences: WARNING" in accepted.stderr
    assert len(gzip.decompress(rows_file.read_bytes()).splitlines()) == 1
    assert (tmp_path / "accepted" / "recipes" / "raw-rows.yaml").exists()


@pytest.mark.parametrize("words", ["raw --output rows.ndjsonl", "filter --output-path rows.txt"])
def test_refused_rejects_are_accepted_with_the_option_that_the_error_names(
    tmp_path: Path, typed: Corpusmill, words: str
) -> None:
    command, option, file = words.split()
    folder, output = tmp_path / "datasets" / "maker" / "gaps", tmp_path / file
    folder.mkdir(parents=True)
    texts = ["", *(f"Row {number} has a text of some length. " * 9 for number in range(11))]
    (folder / "rows.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    args = ("stage2", command, "--dataset", "maker/gaps", "--license", "mit", option, output, "--out-dir", tmp_path)

    with LoopbackHub(tmp_path) as served:
        env = served.client_environment()
        refused = typed(*args, env=env, status=1)
        assert "max_reject_fraction" not in (tmp_path / "recipes" / f"{command}-rows.yaml").read_text()
        accepted = typed(*args, "--max-reject-fraction", "0.1", "--replace", env=env)

    assert "1 of 12 rows is rejected (1 empty_text), above --max-reject-fraction 0.001" in refused.stderr
    assert refused.stderr.endswith("or set --max-reject-fraction to 0.1 to accept these rejects\n")
    assert output.exists(), accepted.stderr


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_raw_reads_a_nested_text_column(tmp_path: Path, typed: Corpusmill, ending: str) -> None:
    rows = [{"body": {"text": f"Row {number} has its text in an object."}, "id": f"r{number}"} for number in range(5)]
    folder = tmp_path / "datasets" / "maker" / "nested"
    folder.mkdir(parents=True)
    (folder / "0.jsonl").write_text("")  # a file without rows has no columns
    if ending == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), folder / "1.parquet")
    else:
        (folder / "1.jsonl").write_text("\n".join(map(json.dumps, rows)))
    plain = tmp_path / "rows.ndjsonl"
    options = ("--dataset", "maker/nested", "--text-column", "body.text", "--license", "mit", "--output", plain)

    with LoopbackHub(tmp_path) as served:
        env = served.client_environment()
        typed("stage2", "raw", *options, "--out-dir", tmp_path / "out", env=env)
        wrong = ("--text-column", "bod.text", "--out-dir", tmp_path / "wrong")
        refused = typed("stage2", "raw", *options, *wrong, env=env, status=2)

    written = [json.loads(line) for line in plain.read_text().splitlines()]
    assert sorted((row["text"], row["doc_id"]) for row in written) == [(row["body"]["text"], row["id"]) for row in rows]
    assert "column `bod.text` not found among body, id; set --text-column to the column" in refused.stderr


@pytest.mark.parametrize("ending", ["ndjsonl", "jsonl.zstd"])
def test_stage_a_reads_the_rows_that_raw_wrote(tmp_path: Path, typed: Corpusmill, ending: str) -> None:
    rows = tmp_path / f"web.{ending}"
    options = ("--dataset", WEB, "--limit", 20, "--output", rows, "--license", "odc-by", "--out-dir", tmp_path / "out")
    typed("stage2", "raw", *options)

    typed("stage-a", "normalize", "--input", rows, "--source", "web", "--out-dir", tmp_path / "read")

    [manifest] = (tmp_path / "read").rglob("normalized/web/manifest.json")
    assert json.loads(manifest.read_bytes())["identity"]["counts"]["documents"] == 20
    assert (rows.read_bytes()[:4] == b"\x28\xb5\x2f\xfd") == (ending == "jsonl.zstd")


def test_figures_exclude_filters_of_an_earlier_recipe(hub: LoopbackHub, tmp_path: Path, typed: Corpusmill) -> None:
    def change(content: dict[str, Any], filters: dict[str, Any], dedup: dict[str, Any] | None) -> None:
        [web] = [source for source in content["sources"] if source["source"] == "web"]
        content |= _SHARDS | {"sources": [web | {"filters": filters}], "dedup": dedup}

    figures = tmp_path / "stage2/small/mixtures/small_filtered_shards.json"
    for filters, dedup in (({"length": {"min_characters": 20}}, {}), ({}, None)):
        recipe_with(tmp_path, hub.commits(), partial(change, filters=filters, dedup=dedup))
        typed("stage2", "process", "small", "--out-dir", tmp_path, "--replace")
        assert figures.exists() == bool(filters)
    assert (tmp_path / "stage2/small/filtered/web").exists()


def test_filter_writes_a_text_per_line_that_is_read_back_unchanged(
    hub: LoopbackHub, tmp_path: Path, typed: Corpusmill
) -> None:
    text = tmp_path / "web.txt"
    result = typed(
        *("stage2", "filter", "--dataset", WEB, "--output-path", text, "--out-dir", tmp_path),
        *("--min-chars", 100, "--max-chars", 5000, "--lang-threshold", "0.9", "--license", "odc-by"),
    )

    lines = text.read_text().splitlines()
    assert len(lines) == 40 and all(100 <= len(line) <= 5000 for line in lines)
    assert not any("Dieser Text" in line for line in lines)
    [hint] = [line for line in result.stdout.splitlines() if "text_unit" in line]
    assert hint.strip() == "to read it in a recipe: {kind: local, files: [web.txt], text_unit: line}"

    section = yaml.safe_load(hint.partition(": ")[2])
    section |= {"source": "web", "path": str(tmp_path), "domain": "web", "license_tag": "odc-by"}
    recipe_with(tmp_path, hub.commits(), lambda content: content.update(sources=[section], **_SHARDS), "again")
    typed("stage2", "process", "again", "--out-dir", tmp_path)
    manifest = json.loads((tmp_path / "stage2/again/raw_corpus/web/manifest.json").read_bytes())
    assert manifest["identity"]["counts"]["documents"] == len(lines)


def test_file_patterns_escape_brackets_and_commas(out: Path, tmp_path: Path, typed: Corpusmill) -> None:
    root = Path(shutil.copytree(out, tmp_path / "web [1], x"))
    config = yaml.safe_load(typed("stage2", "train-config", "small", "--data", root).stdout)
    shards = sorted(map(str, (root / "stage2/small/shards/web").glob("shard_*.npy")))
    assert sorted(glob.glob(config["corpora"]["web"]["glob"])) == shards != []

    text = tmp_path / "web [1], x.txt"
    done = typed("stage2", "filter", "--dataset", WEB, "--output-path", text, "--out-dir", tmp_path, "--license", "mit")
    [hint] = [line for line in done.stdout.splitlines() if "text_unit" in line]
    assert glob.glob(*yaml.safe_load(hint.partition(": ")[2])["files"], root_dir=tmp_path) == [text.name]
