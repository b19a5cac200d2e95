"""The commands of `corpusmill stage2` against a hub on loopback."""

import glob
import gzip
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from command_results import Corpusmill, Result
from forgery import flip
from stage2_build import CODE, PAGES, WEB, recipe_with, write_datasets

from pipeline_assets.corpus.shards.reader import MixtureReader
from pipeline_assets.demo.loopback_hub import LoopbackHub
from pipeline_assets.spine.key_types import UNPINNED

pytest.importorskip("py3langid", reason="needs the extra `languages`")
PROJECT = Path(__file__).parents[1]
_SHARDS = {
    "tokenizer": {"kind": "trained", "sources": {"web": "1"}, "sample_bytes": 20_000, "vocab_size": 150},
    "dedup": None,
    "shards": {"sources": {"web": "1"}, "seq_len": 64, "rows_per_shard": 16},
    "segments": None,
}


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackHub]:
    folder = tmp_path_factory.mktemp("hub")
    write_datasets(folder)
    with LoopbackHub(folder) as served:
        yield served


@pytest.fixture(scope="module")
def typed(hub: LoopbackHub, corpusmill: Corpusmill) -> Corpusmill:
    def run(*args: object, env: dict[str, str] | None = None, status: int = 0) -> Result:
        result = corpusmill(*args, env=hub.client_environment() | (env or {}))
        assert result.returncode == status, result.stderr
        return result

    return run


@pytest.fixture(scope="module")
def out(hub: LoopbackHub, tmp_path_factory: pytest.TempPathFactory, typed: Corpusmill) -> Path:
    root = tmp_path_factory.mktemp("out")
    recipe_with(root, hub.commits())
    result = typed("stage2", "process", "small", "--out-dir", root, "--log-file", root / "logs" / "process.log")
    assert "inventory" in result.stdout and (root / "logs" / "process.log").read_text()
    return root


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


def test_raw_without_a_licence_is_refused_with_the_option(hub: LoopbackHub, tmp_path: Path, typed: Corpusmill) -> None:
    typed("stage2", "raw", "--dataset", CODE, "--text-column", "content", "--out-dir", tmp_path)  # its rows have one

    rows = [json.dumps({"text": f"Row {number} says nothing of its licence."}) for number in range(5)]
    folder = hub.folder / "datasets" / "maker" / "bare"
    folder.mkdir(exist_ok=True)
    (folder / "rows.jsonl").write_text("\n".join(rows))
    command, rows_file = ("stage2", "raw", "--dataset", "maker/bare", "--out-dir"), tmp_path / "accepted/rows.jsonl.gz"
    options = (tmp_path / "accepted", "--output", rows_file, "--license", "unknown")
    with LoopbackHub(hub.folder) as served:
        refused = typed(*command, tmp_path / "bare", env=served.client_environment(), status=2)
        accepted = typed(*command, *options, env=served.client_environment())
    assert "--license: no licence is set for bare" in refused.stderr and refused.stderr.count("\n") <= 3
    assert "documents_have_licences: WARNING" in accepted.stderr
    assert len(gzip.decompress(rows_file.read_bytes()).splitlines()) == 5
    assert (tmp_path / "accepted" / "recipes" / "raw-rows.yaml").exists()


@pytest.mark.parametrize(
    ("option", "value"), [("--license", "no-such"), ("--lang-threshold", "high"), ("--text-column", "body")]
)
def test_errors_of_stage2_options_name_the_option(tmp_path: Path, typed: Corpusmill, option: str, value: str) -> None:
    args = ("stage2", "filter", "--dataset", WEB, "--output-path", tmp_path / "web.txt", "--out-dir", tmp_path)
    assert option in typed(*args, option, value, status=2).stderr


@pytest.mark.parametrize(("command", "option"), [("raw", "--output"), ("filter", "--output-path")])
def test_a_folder_as_output_file_is_refused_before_a_read(
    tmp_path: Path, typed: Corpusmill, command: str, option: str
) -> None:
    options = ("--dataset", WEB, option, tmp_path, "--out-dir", tmp_path / "out")

    refused = typed("stage2", command, *options, status=2)

    assert f"{tmp_path}: output file is a folder; name a file" in refused.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("command", "option", "name", "message"),
    [
        (
            "raw",
            "--output",
            "a.txt",
            "--output: must end with .jsonl, .ndjson, .ndjsonl, .json, compressed or not, got a.txt",
        ),
        (
            "raw",
            "--output",
            "日本.ndjsonl",
            "日本.ndjsonl: the file names the source, so its name must contain an ASCII",
        ),
        (
            "filter",
            "--output-path",
            "a.jsonl.gz",
            "--output-path: must end with .txt, .md, compressed or not, got a.jsonl.gz",
        ),
    ],
)
def test_an_output_file_with_a_wrong_name_is_refused(
    tmp_path: Path, typed: Corpusmill, command: str, option: str, name: str, message: str
) -> None:
    options = ("--dataset", WEB, option, tmp_path / name, "--out-dir", tmp_path / "out")

    refused = typed("stage2", command, *options, status=2)

    assert message in refused.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("ending", ["ndjsonl", "jsonl.zstd"])
def test_stage_a_reads_the_rows_that_raw_wrote(tmp_path: Path, typed: Corpusmill, ending: str) -> None:
    rows = tmp_path / f"web.{ending}"
    options = ("--dataset", WEB, "--limit", 20, "--output", rows, "--license", "odc-by", "--out-dir", tmp_path / "out")
    typed("stage2", "raw", *options)

    typed("stage-a", "normalize", "--input", rows, "--source", "web", "--out-dir", tmp_path / "read")

    [manifest] = (tmp_path / "read").rglob("normalized/web/manifest.json")
    assert json.loads(manifest.read_bytes())["identity"]["counts"]["documents"] == 20
    assert (rows.read_bytes()[:4] == b"\x28\xb5\x2f\xfd") == (ending == "jsonl.zstd")


@pytest.mark.parametrize(
    "args",
    [
        ("raw", "--dataset", WEB, "--output", "IN/web.jsonl"),
        ("filter", "--dataset", WEB, "--output-path", "IN/web.txt"),
        ("process", "small", "--log-file", "IN/logs/process.log"),
        ("tokenizer", "check", "--tokenizer-path", "IN/spm_160_unigram.model", "--metadata-json", "IN/checksum.json"),
        ("tokenizer", "train", "--manifest", "small", "--vocab-size", "150", "--output-dir", "IN"),
        ("docs", "--output", "IN/page.md"),
    ],
    ids=lambda args: args[0],
)
def test_no_output_file_is_written_into_a_sealed_artifact(
    out: Path, tmp_path: Path, typed: Corpusmill, args: tuple[str, ...]
) -> None:
    sealed = out / "stage2" / "small" / "tokenizer"
    data = () if args[0] in ("tokenizer", "docs") else ("--out-dir", tmp_path / "out")
    before = {path: path.read_bytes() for path in sealed.iterdir()}

    refused = typed("stage2", *(arg.replace("IN", str(sealed)) for arg in args), *data, status=2)

    assert f"output file is in the sealed artifact {sealed}; choose another folder" in refused.stderr
    assert {path: path.read_bytes() for path in sealed.iterdir()} == before


def test_an_artifact_as_data_root_is_refused(out: Path, typed: Corpusmill) -> None:
    sealed = out / "stage2" / "small" / "tokenizer"
    before = sorted(sealed.rglob("*"))

    for command, option in ((("stage2", "process"), "--out-dir"), (("run",), "--data")):
        refused = typed(*command, out / "recipes" / "small.yaml", option, sealed, status=2)
        assert f"{sealed}: expected a data root, got an artifact; set {option} to another folder" in refused.stderr
    refused = typed("manifests", "export", "--data", out, "--to", sealed, status=2)
    assert f"{sealed}: the folder is a sealed artifact; set --to to another folder" in refused.stderr
    assert sorted(sealed.rglob("*")) == before


@pytest.mark.parametrize("name", ["log", "log.json"])
def test_a_folder_as_log_file_is_refused(out: Path, tmp_path: Path, typed: Corpusmill, name: str) -> None:
    (tmp_path / name).mkdir()

    refused = typed("stage2", "process", "small", "--out-dir", out, "--log-file", tmp_path / name, status=2)

    assert f"{tmp_path / name}: output file is a folder; name a file" in refused.stderr


def test_a_json_log_file_has_the_statistics_of_the_mixture(out: Path, tmp_path: Path, typed: Corpusmill) -> None:
    log = tmp_path / "logs" / "process.json"
    shutil.rmtree(out / "stage2/small/mixtures")  # as if the artifacts were pulled
    typed("stage2", "process", "small", "--out-dir", out, "--log-file", log)
    statistics = json.loads(log.read_text())
    sums = json.loads((out / "stage2/small/mixtures/small_shards.json").read_text())["all"]
    assert {name: statistics[name] for name in sums} == sums and sums["records"] > 0
    filtered = json.loads((out / "stage2/small/mixtures/small_filtered_shards.json").read_text())
    assert statistics["filtered_shards"] == filtered
    web = filtered["corpora"]["web"]
    assert web["records_in"] == 42 and web["records_kept"] + sum(web["dropped"].values()) == 42
    assert filtered["all"]["tokens"] == sums["tokens"]
    assert statistics["tokenizer"]["vocab_size"] == 160

    args = ("stage2", "tokenizer", "train", "--manifest", "small", "--out-dir", out, "--log-file", tmp_path / "t.json")
    typed(*args)
    assert json.loads((tmp_path / "t.json").read_text())["sha256"] == statistics["tokenizer"]["sha256"]


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


def test_tokenizer_train_copies_the_model_and_writes_a_new_recipe(out: Path, tmp_path: Path, typed: Corpusmill) -> None:
    train = ("stage2", "tokenizer", "train", "--manifest", "small", "--out-dir", out)
    typed(*train, "--output-dir", tmp_path / "model")
    model = tmp_path / "model" / "spm_160_unigram.model"
    assert model.read_bytes() == (out / "stage2/small/tokenizer/spm_160_unigram.model").read_bytes()

    typed(*train, "--vocab-size", 150, "--log-file", tmp_path / "train.log")
    assert (out / "stage2/small-150/tokenizer/spm_150_unigram.model").exists()
    assert "training on" in (tmp_path / "train.log").read_text()

    new, base = (next((out / f"stage2/{name}/filtered/web/shards").iterdir()) for name in ("small-150", "small"))
    assert new.stat().st_ino == base.stat().st_ino, "artifacts that need no tokenizer are reused"

    too_large = typed(*train, "--vocab-size", 9999, status=2).stderr.splitlines()[-1]
    assert re.fullmatch(r"corpusmill: --vocab-size: must be <= \d+ for this sample, got 9,999; .+", too_large)


def test_tokenizer_check_knows_a_model_and_refuses_another_hash(out: Path, tmp_path: Path, typed: Corpusmill) -> None:
    model, metadata = out / "stage2/small/tokenizer/spm_160_unigram.model", tmp_path / "told.json"
    result = typed("stage2", "tokenizer", "check", "--tokenizer-path", model, "--metadata-json", metadata)
    assert json.loads(metadata.read_text())["vocabulary_size"] == 160
    assert json.loads(result.stdout)["is_expected"]
    assert typed("tokenizer", "check", model).stdout == result.stdout

    copy = Path(shutil.copy(model, tmp_path))
    assert json.loads(typed("tokenizer", "check", copy).stdout)["is_expected"] is None
    checksum = {"file": "spm_150_unigram.model", "sha256": "0" * 64}
    (tmp_path / "checksum.json").write_text(json.dumps(checksum))
    unrelated = json.loads(typed("tokenizer", "check", copy).stdout)
    assert unrelated["is_expected"] is None, "checksum.json is about another model"

    options = ("--tokenizer_path", model, "--expected_sha256", "0" * 64, "--metadata_json", metadata)
    wrong = typed("stage2", "tokenizer", "check", *options, status=1)
    record = json.loads(metadata.read_text())
    assert (record["sha256"], record["expected_sha256"]) == (json.loads(result.stdout)["sha256"], "0" * 64)
    assert not record["is_expected"]
    assert f"pinned {'0' * 64}" in wrong.stderr


def test_process_accepts_only_the_external_tokenizer_that_the_recipe_expects(
    out: Path, hub: LoopbackHub, tmp_path: Path, typed: Corpusmill
) -> None:
    model = shutil.copy(out / "stage2/small/tokenizer/spm_160_unigram.model", tmp_path / "given.model")
    typed("stage2", "process", "small", "--tokenizer-path", model, "--out-dir", out)
    [folder] = (path for path in (out / "stage2").glob("small-*") if (path / "shards").exists())
    built, other = (np.load(root / "shards/web/shard_00000.npy") for root in (out / "stage2/small", folder))
    assert (built == other).all() and built.dtype == np.uint16

    recipe_with(tmp_path, hub.commits(), lambda recipe: recipe["tokenizer"].update(expected_sha256="0" * 64))
    refused = typed("stage2", "process", "small", "--tokenizer-path", model, "--out-dir", tmp_path, status=2)
    assert "small expects 000000" in refused.stderr

    segments = {"segments": [{"name": "a", "tokens": 64, "weights": {"web": 1}}]}
    recipe = {"system": "stage2", "name": "cut", "mixture": "small", "segments": segments}
    (tmp_path / "cut.yaml").write_text(yaml.safe_dump(recipe))
    args = ("stage2", "process", tmp_path / "cut.yaml", "--tokenizer-path", model, "--out-dir", tmp_path)
    assert "the recipe has no token shards; use a recipe with `shards`" in typed(*args, status=2).stderr

    section = {"kind": "file", "family": "sentencepiece", "path": str(model), "end_of_document": "<eod>"}
    section["sha256"] = hashlib.sha256(Path(model).read_bytes()).hexdigest()
    recipe_with(tmp_path, hub.commits(), lambda recipe: recipe.update(tokenizer=section))
    refused = typed("stage2", "process", "small", "--out-dir", tmp_path, status=2)
    assert "small.yaml: tokenizer.end_of_document: '<eod>' is not a piece of given.model" in refused.stderr


def test_verify_writes_a_days_inventory_and_names_differences(out: Path, tmp_path: Path, typed: Corpusmill) -> None:
    root = shutil.copytree(out, tmp_path / "out")
    typed("stage2", "verify", "small", "--data", root)
    [inventory] = (root / "logs").glob("data_inventory_*.json")
    content = json.loads(inventory.read_text())
    assert content["verified_at_utc"] and content["differences"] == []
    rows = sum(len(np.load(path)) for path in (root / "stage2/small/shards/web").glob("shard_*.npy"))
    assert content["corpora"]["web"]["sequences"] == rows
    assert inventory.with_suffix(".md").read_text().startswith("Verified on ")

    web, pages, code = (root / "stage2/small/shards" / name for name in ("web", "pages", "code"))
    flip(web / "shard_00000.npy")
    (pages / "shard_00000.npy").unlink()
    shutil.copy(code / "shard_00000.npy", code / "shard_00099.npy")
    result = typed("stage2", "verify", "small", "--data", root, status=1)

    for message in ("web: shard_00000.npy: ", "pages: shard_00000.npy: ", "code: shard_00099.npy: "):
        assert message in result.stderr, result.stderr


def test_train_config_suffices_for_a_reader(out: Path, typed: Corpusmill) -> None:
    result = typed("stage2", "train-config", "small", "--data", out)
    config = yaml.safe_load(result.stdout)

    assert (config["dtype"], config["seq_len"], config["eos_id"]) == ("uint16", 64, 2)
    assert Path(config["tokenizer"]["path"]).exists()
    assert config["corpora"]["pages"]["weight"] == 0.25
    folders = {name: Path(corpus["glob"]).parent for name, corpus in config["corpora"].items()}
    reader = MixtureReader(folders, {name: str(corpus["weight"]) for name, corpus in config["corpora"].items()}, seed=1)
    batch = next(iter(reader.batches(4)))
    assert batch.shape == (4, 64)

    content = yaml.safe_load((out / "recipes" / "small.yaml").read_text())
    content["shards"]["sources"] = {"web": 1, "pages": 1, "code": 1}
    (out / "recipes" / "thirds.yaml").write_text(yaml.safe_dump(content))
    thirds = yaml.safe_load(typed("stage2", "train-config", out / "recipes" / "thirds.yaml", "--data", out).stdout)
    assert {corpus["weight"] for corpus in thirds["corpora"].values()} == {1 / 3}


def test_file_patterns_escape_brackets_and_commas(out: Path, tmp_path: Path, typed: Corpusmill) -> None:
    root = Path(shutil.copytree(out, tmp_path / "web [1], x"))
    config = yaml.safe_load(typed("stage2", "train-config", "small", "--data", root).stdout)
    shards = sorted(map(str, (root / "stage2/small/shards/web").glob("shard_*.npy")))
    assert sorted(glob.glob(config["corpora"]["web"]["glob"])) == shards != []

    text = tmp_path / "web [1], x.txt"
    done = typed("stage2", "filter", "--dataset", WEB, "--output-path", text, "--out-dir", tmp_path, "--license", "mit")
    [hint] = [line for line in done.stdout.splitlines() if "text_unit" in line]
    assert glob.glob(*yaml.safe_load(hint.partition(": ")[2])["files"], root_dir=tmp_path) == [text.name]


def test_the_docs_page_matches_the_manifests(tmp_path: Path, typed: Corpusmill) -> None:
    typed("stage2", "docs", "--output", tmp_path / "new" / "page.md")
    stale = "docs/stage2_mixture.md is stale: run `corpusmill stage2 docs`"
    assert (tmp_path / "new" / "page.md").read_text() == (PROJECT / "docs" / "stage2_mixture.md").read_text(), stale


def test_built_manifests_are_exported_for_git(out: Path, tmp_path: Path, typed: Corpusmill) -> None:
    typed("manifests", "export", "--data", out, "--to", tmp_path / "manifests")

    exported = tmp_path / "manifests" / "stage2" / "small"
    names = {"small.yaml", "tokenizer.json", "shards.json", "full_shards.json", "inventory.json", "inventory.md"}
    assert set(os.listdir(exported)) == names | {"filtered_shards.json"}
    shards = json.loads((exported / "shards.json").read_text())
    assert shards["all"]["tokens"] == sum(corpus["tokens"] for corpus in shards["corpora"].values())


def test_a_token_of_a_shard_traces_to_a_row_at_a_commit(out: Path, hub: LoopbackHub, typed: Corpusmill) -> None:
    result = typed("trace", out / "stage2/small/shards/pages", "--token", 100, "--data", out)

    assert f"{PAGES}@{hub.commits()[PAGES]}:20231101.en/train-0.parquet#" in result.stdout
    assert "cc-by-sa-4.0" in result.stdout


@pytest.mark.slow
def test_smoke_builds_the_shipped_mixture_and_then_reuses_it(tmp_path: Path, typed: Corpusmill) -> None:
    smoke = typed("stage2", "smoke", "--out-dir", tmp_path / "smoke")
    assert "artifacts built" in smoke.stdout and "refinedweb" in smoke.stdout
    assert "all artifacts are up to date" in typed("stage2", "smoke", "--out-dir", tmp_path / "smoke").stdout
    typed("stage2", "verify", "mixture_made", "--data", tmp_path / "smoke")


def test_a_foreign_recipe_keeps_comments_if_pinned(hub: LoopbackHub, tmp_path: Path, typed: Corpusmill) -> None:
    recipe_with(tmp_path / "elsewhere", dict.fromkeys((WEB, PAGES, CODE), UNPINNED), name="mine")
    recipe = tmp_path / "elsewhere" / "recipes" / "mine.yaml"
    recipe.write_text("# Why it is as it is.\n" + recipe.read_text())

    typed("stage2", "tokenizer", "train", "--manifest", recipe, "--out-dir", tmp_path / "out")
    copy = tmp_path / "out" / "recipes" / "mine.yaml"
    assert copy.read_text().startswith("# Why it is as it is.\n") and hub.commits()[WEB] in copy.read_text()
    typed("stage2", "tokenizer", "train", "--manifest", "mine", "--out-dir", tmp_path / "out")
    assert "another recipe exists" in typed("stage2", "process", recipe, "--out-dir", tmp_path / "out", status=2).stderr


def test_an_invalid_tokenizer_file_changes_no_recipe(out: Path, tmp_path: Path, typed: Corpusmill) -> None:
    before = {path: path.read_bytes() for path in (out / "recipes").iterdir()}
    (tmp_path / "none.model").write_bytes(b"no model")

    args = ("stage2", "process", "small", "--tokenizer-path", tmp_path / "none.model", "--out-dir", out)
    assert "not a SentencePiece model" in typed(*args, status=1).stderr
    assert {path: path.read_bytes() for path in (out / "recipes").iterdir()} == before
