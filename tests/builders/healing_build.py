"""Healing set of a few pages, built without Dagster."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline_assets.build.build_target import build_target
from pipeline_assets.build.run import Run
from pipeline_assets.build.target import Target
from pipeline_assets.corpus.megatron_split import build_split
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.tokens.families import TokenizerFile
from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_SHA256, Driver
from pipeline_assets.corpus.training_set import Split, read_selection
from pipeline_assets.spine.artifact import Artifact, open_artifact
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.systems.healing import HealingRecipe

DATASET = "maker/pages"
FILE = "data/pages.parquet"
INLINE = RunSettings(workers=0)


def write_pages(hub_folder: Path, **options: object) -> Path:
    """Write the file of maker/pages: six row groups, larger than a footer fetch."""
    texts = [hashlib.shake_256(b"%d" % number).hexdigest(1000) for number in range(300)]
    path = hub_folder / "datasets" / DATASET / FILE
    path.parent.mkdir(parents=True)
    table = pa.table({"text": texts, "id": [f"page-{number}" for number in range(300)]})
    pq.write_table(table, path, row_group_size=50, compression="zstd", **options)
    return path


def parse_recipe(
    revision: str,
    snapshot: Mapping[str, object] | None = None,
    megatron: Mapping[str, object] | None = None,
    shards: tuple[str, ...] = ("shards/*",),
) -> HealingRecipe:
    """Parse a healing recipe of all of maker/pages; arguments change its sections."""
    everything: dict[str, object] = {
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
        "amount": {"files": 100},
        "seed": "seed",
        "shard_text_bytes": 1 << 26,
    }
    tokens: dict[str, object] = {
        "tokenizer": {"family": "o200k_harmony", "sha256": VOCABULARY_SHA256},
        "token_budget": 1_000_000,
        "valid_fraction": "0.1",
    }
    return HealingRecipe.model_validate(
        {
            "system": "healing",
            "name": "pages_v1",
            "snapshot": everything | dict(snapshot or {}),
            "selection": {"shards": list(shards)},
            "megatron": tokens | dict(megatron or {}),
        }
    )


def build_snapshot(recipe: HealingRecipe, root: Path, hub: HubFiles, engine: RunSettings = INLINE) -> Artifact:
    return _build(recipe.fineweb_edu_snapshot(), Run(root, engine, hub))


def build_megatron(
    recipe: HealingRecipe,
    root: Path,
    split: Split,
    engine: RunSettings = INLINE,
    driver: Driver = "gigatoken",
    replace: bool = False,
) -> Artifact:
    selection = _build(recipe.healing_text_manifest(), Run(root, INLINE))
    corpus = open_artifact(root / recipe.fineweb_edu_snapshot().folder)
    shards = read_selection(selection.manifest)
    tokenizer = TokenizerFile(recipe.megatron.tokenizer, engine.vocabulary, driver)
    return build_target(
        recipe.megatron_split(split),
        root,
        lambda building: build_split(building, corpus, shards, recipe.megatron, split, engine, tokenizer),
        replace,
        {},
    )


def build_all(recipe: HealingRecipe, root: Path, hub: HubFiles, engine: RunSettings = INLINE) -> list[Artifact]:
    return [_build(target, Run(root, engine, hub)) for target in recipe.targets()]


def _build(target: Target, run: Run) -> Artifact:
    return target.kind.build(target, run)
