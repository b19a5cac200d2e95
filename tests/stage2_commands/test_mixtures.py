"""Built mixtures, as the commands of stage 2 verify, describe and export them."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml
from command_results import Corpusmill
from forgery import flip
from stage2_build import PAGES

from pipeline_assets.corpus.shards.reader import MixtureReader
from pipeline_assets.demo.loopback_hub import LoopbackHub

pytest.importorskip("py3langid", reason="needs the extra `languages`")
PROJECT = Path(__file__).parents[2]


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


def test_verify_prints_the_files_it_wrote_for_a_name_with_a_dot(out: Path, tmp_path: Path, typed: Corpusmill) -> None:
    content = yaml.safe_load((out / "recipes" / "small.yaml").read_text()) | {"name": "small.v2"}
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "small.v2.yaml").write_text(yaml.safe_dump(content))
    shutil.copytree(out / "stage2/small", tmp_path / "stage2/small.v2")

    printed = [typed("stage2", "verify", "small.v2", "--data", tmp_path).stdout.splitlines() for _ in range(2)]

    reports = sorted(line for lines in printed for line in lines[:2])
    assert reports == sorted(map(str, (tmp_path / "logs").iterdir())) and len(reports) == 4


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
