"""Parallel text from a hub or a folder, built without Dagster."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline_assets.build.run import Run
from pipeline_assets.build.run_targets import run_targets
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.spine.artifact import Artifact, open_artifact
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.systems.parallel_text import ParallelRecipe

INLINE = RunSettings(workers=0)
DATASET = "maker/pairs"
SIZES = {"train": 90, "validation": 30}
_WORDS = ("ship", "sea", "wind", "harbour", "old", "new", "house", "river", "bread", "tree", "stone", "light")
_CARD = """---
configs:
- config_name: fr-en
  data_files:
  - {split: train, path: fr-en/train-*}
  - {split: validation, path: fr-en/validation-*}
---
# Pairs

Made up.
"""


def pairs(split: str) -> list[dict[str, str]]:
    """Build different pairs of a split, one of them only punctuation."""
    draw = Random(split)
    texts = [" ".join(draw.choices(_WORDS, k=draw.randint(3, 9))) for _ in range(SIZES[split] - 1)]
    rows = [{"fr": f"{text[::-1]} {number}.", "en": f"{text} {number}."} for number, text in enumerate(texts)]
    return [*rows, {"fr": "…", "en": "!"}]


def write_set(folder: Path, parquet: bool = True) -> None:
    """Write both splits, one file each."""
    folder.mkdir(parents=True, exist_ok=True)
    for split in SIZES:
        if parquet:
            pq.write_table(pa.table({"translation": pairs(split)}), folder / f"{split}-0.parquet", row_group_size=20)
        else:
            lines = (json.dumps({"translation": pair}) + "\n" for pair in pairs(split))
            (folder / f"{split}-0.jsonl").write_text("".join(lines))


def write_hub(folder: Path) -> None:
    place = folder / "datasets" / DATASET
    write_set(place / "fr-en")
    (place / "README.md").write_text(_CARD)


def contents(source: dict[str, Any], **sample: Any) -> dict[str, Any]:
    return {
        "system": "parallel_text",
        "name": "pairs",
        "source": source,
        "sample": {"languages": {"src": "fr", "tgt": "en"}, "k": 40} | sample,
        "encode": {"vocab_size": 500, "seq_len": 64},
    }


def from_hub(commit: str, **sample: Any) -> ParallelRecipe:
    source = {"dataset": DATASET, "revision": commit, "files": ["fr-en/{split}-*.parquet"]}
    return ParallelRecipe.from_mapping(contents(source, **sample), "made")


def from_folder(folder: Path, ending: str = "parquet", **sample: Any) -> ParallelRecipe:
    source = {"path": str(folder), "files": [f"{{split}}-*.{ending}"]}
    return ParallelRecipe.from_mapping(contents(source, **sample), "made")


def write_pairs(folder: Path) -> ParallelRecipe:
    """Write a recipe of local files, for builds without a hub."""
    write_set(folder / "pairs", parquet=False)
    return from_folder(folder / "pairs", "jsonl")


def build(recipe: ParallelRecipe, root: Path, hub: HubFiles | None = None) -> dict[str, Artifact]:
    run = Run(root, INLINE, hub)
    targets = [outcome.target for outcome in run_targets(recipe.targets(), run)]
    return {target.role: open_artifact(root / target.folder) for target in targets}
