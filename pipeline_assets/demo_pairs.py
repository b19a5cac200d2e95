"""A translation set of the demo, laid out as WMT14 fr-en is, and the shipped recipe over it.

Its sentences are made up, and so is the language that they are translated to: each word has its own, always the same.
"""

from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

from pipeline_assets.corpus.spine import durable
from pipeline_assets.corpus.spine.recipe import read_yaml
from pipeline_assets.demo_library import parquet, write_changed, write_recipe
from pipeline_assets.demo_sources import sentence
from pipeline_assets.systems.parallel_text import ParallelRecipe
from pipeline_assets.systems.registry import PROJECT_RECIPES

PAIRS_DATASET, NAME = "wmt/wmt14", "wmt14_made"
_ROWS = {"train": 2000, "validation": 200}
_VOWELS = str.maketrans("aeiou", "éouia")
_CARD = """---
configs:
- config_name: fr-en
  data_files:
  - {split: train, path: fr-en/train-*}
  - {split: validation, path: fr-en/validation-*}
---
# WMT14, made up

This is not WMT14 and holds none of its text: it has the same files and columns, so that a pipeline for the real set
runs on it offline. The side `fr` is no French.
"""


def write_pairs(hub: Path) -> None:
    """The set in a hub's folder."""
    folder = hub / "datasets" / PAIRS_DATASET
    for split, rows in _ROWS.items():
        draw, pairs = Random(split), list[dict[str, str]]()
        for _ in range(rows):
            english = sentence(draw)
            pairs.append({"fr": english.lower().translate(_VOWELS).capitalize(), "en": english})
        path = folder / "fr-en" / f"{split}-00000-of-00001.parquet"
        durable.make_folder(path.parent)
        write_changed(path, parquet(pa.table({"translation": pairs}), 100))
    write_changed(folder / "README.md", _CARD.encode())


def made_pairs(root: Path, commits: Mapping[str, str]) -> ParallelRecipe:
    """The shipped recipe, pinned to the made set, in the data root's recipes."""
    content: dict[str, Any] = read_yaml(PROJECT_RECIPES / "wmt14_fr_en.yaml")
    content |= {"name": NAME, "source": content["source"] | {"revision": commits[PAIRS_DATASET]}}
    return ParallelRecipe.read(write_recipe(root, content))
