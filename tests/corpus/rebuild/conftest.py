"""What the tests of rebuilding share: a small healing set, built once; a test may change its copy."""

import dataclasses
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from huggingface_hub import constants

from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.recipes.run import Run
from pipeline_assets.corpus.spine.engine import EngineSettings
from pipeline_assets.systems.healing import HealingRecipe
from resources.loopback_hub import LoopbackHub

sys.path.insert(0, str(Path(__file__).parent))  # of healing_set

from healing_set import HealingSet


@pytest.fixture(scope="session")
def made_once(healing_recipe: Callable[..., HealingRecipe], tmp_path_factory: pytest.TempPathFactory) -> HealingSet:
    """Forty pages in four shards; one of them has no text, one comes twice."""
    place = tmp_path_factory.mktemp("made")
    texts = [f"Page {number}: a naïve “tale” of {number * 37} words, told 🐻 again.\n" for number in range(40)]
    ids = [f"page-{number}" for number in range(40)]
    ids[31] = ids[3]
    table = pa.table({"text": [*texts[:17], None, *texts[18:]], "id": ids})
    dataset = place / "hub" / "datasets" / "maker" / "pages"
    dataset.mkdir(parents=True)
    pq.write_table(table.slice(0, 20), dataset / "a.parquet", row_group_size=10)
    pq.write_table(table.slice(20), dataset / "b.parquet", row_group_size=10)
    with LoopbackHub(place / "hub") as hub, pytest.MonkeyPatch.context() as patch:
        patch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", True)
        patch.setattr(constants, "HF_HUB_DISABLE_IMPLICIT_TOKEN", True)
        snapshot = {"shard_text_bytes": 1, "max_reject_fraction": "0.1"}
        megatron = {"valid_fraction": "0.3", "token_budget": 900}
        recipe = healing_recipe(hub.commits()["maker/pages"], snapshot, megatron)
        hub_files = HubFiles(place / "cache", hub.endpoint, tries=1)
        run = Run(place / "data", EngineSettings(workers=0), hub_files, replace=True)
        healing_set = HealingSet(recipe, run)
        healing_set.build()
    return healing_set


@pytest.fixture
def made(made_once: HealingSet, tmp_path: Path) -> HealingSet:
    """A copy of that set. Its hub is gone; what was read from it is in the cache."""
    shutil.copytree(made_once.root, tmp_path / "data")
    return dataclasses.replace(made_once, run=dataclasses.replace(made_once.run, root=tmp_path / "data"))
