"""Fixtures of small healing sets, built once and copied for changes.

One set has a chain of everything: hub files read whole and in part, and a split that its budget cuts. The other has a
few short pages and is quick to rebuild.
"""

import dataclasses
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from healing_build import DATASET, build_all, parse_recipe
from healing_set import HealingSet
from object_server import ObjectServer, serving

from pipeline_assets.build.run import Run
from pipeline_assets.corpus.readers.hub_files import CACHE_FOLDER, HubFiles
from pipeline_assets.corpus.stores.object_store import ObjectStore
from pipeline_assets.demo.loopback_hub import LoopbackHub
from pipeline_assets.spine.engine import RunSettings

BLANKS = " " * 999_999  # the tokenizer can't encode it, so that it is rejected


def pages(name: str, count: int, digits: int, *more: str) -> pa.Table:
    """Build pages of random hex digits, which hardly compress, and some more."""
    letters = random.Random(name)
    texts = [f"page {number} " + letters.randbytes(digits // 2).hex() for number in range(count)] + list(more)
    return pa.table({"text": texts, "id": [f"{name}-{number}" for number in range(len(texts))]})


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the data root with its hub cache; tests only read it."""
    folder, root = tmp_path_factory.mktemp("hub"), tmp_path_factory.mktemp("chain") / "data"
    dataset = folder / "datasets" / DATASET
    dataset.mkdir(parents=True)
    pq.write_table(pages("a", 10, 300, BLANKS), dataset / "a.parquet", compression="zstd")
    pq.write_table(pages("b", 320, 1500), dataset / "b.parquet", compression="zstd", row_group_size=40)
    with LoopbackHub(folder) as hub:  # 131 rows: the 11 of a.parquet and three row groups of b.parquet
        snapshot = {"amount": {"documents": 131}, "shard_text_bytes": 1}
        megatron = {"token_budget": 60_000, "valid_fraction": "0.3"}
        recipe = parse_recipe(hub.commits()[DATASET], snapshot, megatron)
        build_all(recipe, root, HubFiles(root / CACHE_FOLDER, hub.endpoint))
    return root


@pytest.fixture
def chain_root(pristine: Path, tmp_path: Path) -> Path:
    """Copy the data root for changes."""
    root = tmp_path / "data"
    shutil.copytree(pristine, root)
    for path in root.rglob("*"):
        if path.is_file():
            path.chmod(0o644)
    return root


@pytest.fixture(scope="session")
def built_once(tmp_path_factory: pytest.TempPathFactory) -> HealingSet:
    """Build forty pages in four shards; one has no text, one id is repeated."""
    place = tmp_path_factory.mktemp("made")
    texts = [f"Page {number}: a naïve “tale” of {number * 37} words, told 🐻 again.\n" for number in range(40)]
    ids = [f"page-{number}" for number in range(40)]
    ids[31] = ids[3]
    table = pa.table({"text": [*texts[:17], None, *texts[18:]], "id": ids})
    dataset = place / "hub" / "datasets" / DATASET
    dataset.mkdir(parents=True)
    pq.write_table(table.slice(0, 20), dataset / "a.parquet", row_group_size=10)
    pq.write_table(table.slice(20), dataset / "b.parquet", row_group_size=10)
    with LoopbackHub(place / "hub") as hub:
        snapshot = {"shard_text_bytes": 1, "max_reject_fraction": "0.1"}
        recipe = parse_recipe(hub.commits()[DATASET], snapshot, {"valid_fraction": "0.3", "token_budget": 900})
        hub_files = HubFiles(place / "cache", hub.endpoint, tries=1)
        build_all(recipe, place / "data", hub_files)
        run = Run(place / "data", RunSettings(workers=0), hub_files, replace=True)
    return HealingSet(recipe, run)


@pytest.fixture
def built(built_once: HealingSet, tmp_path: Path) -> HealingSet:
    """Copy the set; its hub is stopped, but the cache has all that was read."""
    shutil.copytree(built_once.root, tmp_path / "data")
    return dataclasses.replace(built_once, run=dataclasses.replace(built_once.run, root=tmp_path / "data"))


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectServer]:
    with serving(tmp_path, monkeypatch) as running:
        yield running


@pytest.fixture
def store(server: ObjectServer) -> ObjectStore:
    return ObjectStore.open("s3://bucket/a")


@pytest.fixture
def pull_root(tmp_path: Path) -> Path:
    return tmp_path / "elsewhere"


@pytest.fixture
def split(built: HealingSet) -> Path:
    """Return the folder of a split, a member of a dataset."""
    return built.folder("train")
