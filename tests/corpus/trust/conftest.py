"""A small healing set with a chain of everything: hub files read whole and in part, a split that its budget cuts."""

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from huggingface_hub import constants

from pipeline_assets.corpus.megatron_split import SplitSettings, build_split, describe_dataset
from pipeline_assets.corpus.normalize.converted import NormalizeSettings
from pipeline_assets.corpus.readers.hub_files import CACHE_FOLDER, HubFiles
from pipeline_assets.corpus.sampling.split import SPLITS
from pipeline_assets.corpus.snapshot.take import take_snapshot
from pipeline_assets.corpus.spine.engine import EngineSettings
from pipeline_assets.corpus.text_selection import TextRecipe, select_shards, selected_shards
from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_SHA256
from pipeline_assets.systems.healing import HealingRecipe
from resources.loopback_hub import LoopbackHub

DATASET = "maker/pages"
BLANKS = " " * 999_999  # the tokenizer can't encode it, so that it is rejected
IN_PROCESS = EngineSettings(workers=0)


def pages(name: str, count: int, digits: int, *more: str) -> pa.Table:
    """Pages of random hex digits, which no compressor makes small, and some more."""
    letters = random.Random(name)
    texts = [f"page {number} " + letters.randbytes(digits // 2).hex() for number in range(count)] + list(more)
    return pa.table({"text": texts, "id": [f"{name}-{number}" for number in range(len(texts))]})


def recipe_of(revision: str) -> HealingRecipe:
    """131 rows: the 11 of a.parquet and three row groups of b.parquet; a shard for each row group."""
    snapshot = {
        "name": "pages",
        "dataset": DATASET,
        "config": "default",
        "revision": revision,
        "split": "train",
        "files": ["*.parquet"],
        "source": "pages",
        "domain": "web",
        "license_tag": "cc0",
        "columns": {"text": "text", "id": "id", "created_at": None},
        "rules": [],
        "language": None,
        "amount": {"documents": 131},
        "seed": "seed",
        "shard_text_bytes": 1,
    }
    tokens = {
        "tokenizer": {"family": "o200k_harmony", "sha256": VOCABULARY_SHA256},
        "token_budget": 60_000,
        "valid_fraction": "0.3",
    }
    return HealingRecipe.model_validate(
        {
            "system": "healing",
            "name": "pages_v1",
            "snapshot": snapshot,
            "selection": {"shards": ["shards/*"]},
            "megatron": tokens,
        }
    )


def build(recipe: HealingRecipe, root: Path, hub: HubFiles) -> None:
    corpus = recipe.fineweb_edu_snapshot().build(
        root,
        lambda b: take_snapshot(b, hub, recipe.snapshot, NormalizeSettings(IN_PROCESS, 3, 8)),
        False,
        {},
    )
    text = recipe.healing_text_manifest()
    selection = text.build(root, lambda _: select_shards(corpus, TextRecipe.from_content(text.recipe)), False, {})
    shards = selected_shards(selection.manifest)
    splits = {
        split: recipe.megatron_split(split).build(
            root,
            lambda b, split=split: build_split(b, corpus, shards, recipe.megatron, split, SplitSettings(IN_PROCESS)),
            False,
            {},
        )
        for split in SPLITS
    }
    recipe.megatron_dataset().seal_members(root, describe_dataset(splits, recipe.megatron), {})


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data root, its hub cache with it. Tests only read it."""
    folder, root = tmp_path_factory.mktemp("hub"), tmp_path_factory.mktemp("chain") / "data"
    dataset = folder / "datasets" / DATASET
    dataset.mkdir(parents=True)
    pq.write_table(pages("a", 10, 300, BLANKS), dataset / "a.parquet", compression="zstd")
    pq.write_table(pages("b", 320, 1500), dataset / "b.parquet", compression="zstd", row_group_size=40)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", True)
        patch.setattr(constants, "HF_HUB_DISABLE_IMPLICIT_TOKEN", True)
        with LoopbackHub(folder) as hub:
            build(recipe_of(hub.commits()[DATASET]), root, HubFiles(root / CACHE_FOLDER, hub.endpoint))
    return root


@pytest.fixture
def chain_root(pristine: Path, tmp_path: Path) -> Iterator[Path]:
    """A copy of it that a test may change."""
    root = tmp_path / "data"
    shutil.copytree(pristine, root)
    for path in root.rglob("*"):
        if path.is_file():
            path.chmod(0o644)
    yield root


@pytest.fixture
def dataset() -> Path:
    """The folder of the dataset, below the root."""
    return Path("megatron", "pages_v1")
