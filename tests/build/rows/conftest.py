"""Small snapshot and its splits with a row of every fate."""

import functools
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from healing_build import DATASET, build_megatron, build_snapshot, parse_recipe

from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.training_set import SPLITS
from pipeline_assets.demo.loopback_hub import LoopbackHub
from pipeline_assets.spine.artifact import Artifact, open_artifact

TEXTS = ["one", None, "", "again", "low", "with care", " " * 999_999, "🧿 token in parts", "long " * 40, "behind"]
IDS = ["page-0", "page-3", "page-4", "page-0", "page-5", "page-6", "page-7", "page-8", "page-9", "page-11"]
CHANGES = {"rules": ["score >= 3"], "max_reject_fraction": "0.5", "shard_text_bytes": 1}


Built = Callable[..., dict[str, Artifact]]


@pytest.fixture(scope="session")
def built_once(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Return a function that builds a snapshot and both splits of twenty rows.

    page-1 and page-2 are in valid, the others in train.
    """

    @functools.cache
    def build(token_budget: int = 100, shards: tuple[str, ...] = ("shards/*",)) -> dict[str, Artifact]:
        folder = tmp_path_factory.mktemp("rows")
        table = pa.table({"text": TEXTS, "id": IDS, "score": [5, 5, 5, 5, 1, 5, 5, 5, 5, 5]})
        ids = [f"page-{number}" for number in (1, 2, *range(20, 26), 28, 29)]
        more = pa.table({"text": [f"more {name}" for name in ids], "id": ids, "score": [5] * 10})
        dataset = folder / "hub" / "datasets" / DATASET
        dataset.mkdir(parents=True)
        pq.write_table(pa.concat_tables([table, more]), dataset / "a.parquet", row_group_size=10)
        pq.write_table(more.slice(0, 0), dataset / "b.parquet")
        with LoopbackHub(folder / "hub") as hub:
            megatron = {"token_budget": token_budget, "valid_fraction": "0.1"}
            recipe = parse_recipe(hub.commits()[DATASET], CHANGES, megatron, shards)
            snapshot = build_snapshot(recipe, folder / "data", HubFiles(folder / "cache", hub.endpoint))
        return {"snapshot": snapshot} | {split: build_megatron(recipe, folder / "data", split) for split in SPLITS}

    return build


@pytest.fixture
def built(built_once: Built, tmp_path: Path) -> Built:
    """Return a function that copies them into the data root `data`."""

    def copy(**options: object) -> dict[str, Artifact]:
        artifacts = built_once(**options)
        root = artifacts["snapshot"].folder.parents[2]
        shutil.copytree(root, tmp_path / "data")
        return {
            name: open_artifact(tmp_path / "data" / old.folder.relative_to(root)) for name, old in artifacts.items()
        }

    return copy


@pytest.fixture(scope="module")
def hub_folder(demo_root: Path) -> Path:
    """Return the folder of the demo's FineWeb-Edu on its hub."""
    return demo_root / "hub" / "datasets" / "HuggingFaceFW" / "fineweb-edu"


@pytest.fixture(scope="module")
def source_tables(hub_folder: Path) -> dict[str, list[dict[str, object]]]:
    """Read the rows of the FineWeb-Edu files by path."""
    return {
        path.relative_to(hub_folder).as_posix(): pq.read_table(path).to_pylist()
        for path in sorted(hub_folder.rglob("*.parquet"))
    }
