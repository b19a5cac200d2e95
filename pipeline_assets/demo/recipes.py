"""Recipes of the demo: those that ship, made small and pinned to the made datasets, in the data root's recipes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from pipeline_assets.build.recipe_paths import PROJECT_RECIPES
from pipeline_assets.demo.corpora import EDU_DATASET, HANDBOOK_DATASET, PAIRS_DATASET
from pipeline_assets.spine import durable
from pipeline_assets.spine.recipe_yaml import read_yaml
from pipeline_assets.systems.healing import HealingRecipe
from pipeline_assets.systems.nemotron import NemotronRecipe
from pipeline_assets.systems.parallel_text import ParallelRecipe
from pipeline_assets.systems.stage2_mixture import Stage2Recipe
from pipeline_assets.systems.stage_a import StageARecipe

Commits = Mapping[str, str]
STAGE_A, NEMOTRON, STAGE2 = "stage_a_v1", "nemotron_made", "mixture_made"
_STAGE_A_RECIPE = Path(__file__).with_name("stage_a.yaml")
_TOKEN_BUDGET = 244_500  # both splits come within 1 % of theirs
_TEXT_BYTES = 2_150_000  # 1.4 times 6.3 bytes a token: the corpus is small, so chance needs room
_DOCUMENTS = 2000  # of each source of the mixture, at most


def made_healing(root: Path, commits: Commits) -> HealingRecipe:
    """Write the shipped healing recipe for the demo, and return it."""
    content = _shipped("healing_text_v1")
    content["snapshot"] |= {
        "revision": commits[EDU_DATASET],
        "amount": {"text_bytes": _TEXT_BYTES},
        "shard_text_bytes": 262_144,
        "license_tag": "cc0-1.0",
    }
    content["megatron"]["token_budget"] = _TOKEN_BUDGET
    return HealingRecipe.read(_write(root, content))


def made_stage_a(root: Path, commits: Commits) -> StageARecipe:
    """Write the recipe that asks for every step of stage A, and return it."""
    text = _STAGE_A_RECIPE.read_text(encoding="utf-8").replace("COMMIT", commits[HANDBOOK_DATASET])
    return StageARecipe.read(_write_text(root, STAGE_A, text))


def made_pools(root: Path, commits: Commits) -> NemotronRecipe:
    """Write the shipped Nemotron recipe, whose pools are published on the hub on loopback, and return it."""
    content = _shipped("nemotron_v1") | {"name": NEMOTRON}
    content["datasets"] = [one | {"revision": commits[one["dataset"]]} for one in content["datasets"]]
    content["rows"] |= {"max_reject_fraction": "0.2"}
    # What is made up has no licence that anybody could know.
    content["publish"] = {"repo": "loopback/{dataset}-pools", "allow_unknown_licences": True}
    return NemotronRecipe.read(_write(root, content))


def made_mixture(root: Path, commits: Commits) -> Stage2Recipe:
    """Write the shipped mixture with filters, and segments, and return it."""
    content = _shipped("refinedweb_mixture_filtered") | {"name": STAGE2, "shard_text_bytes": 1 << 17}
    for section in content["sources"]:
        section |= {"revision": commits[section["dataset"]], "amount": {"documents": _DOCUMENTS}}
        if section["source"] == "code":
            section["files"] = ["python/*.parquet"]
    content["tokenizer"] |= {"vocab_size": 700, "sample_bytes": 400_000}
    content["shards"] |= {"seq_len": 512, "rows_per_shard": 64}
    halves = {"refinedweb": "0.5", "wikipedia_en": "0.5"}
    segments = [{"name": name, "tokens": 8192, "weights": halves} for name in ("first", "next")]
    content["segments"] = {"segments": segments}
    return Stage2Recipe.read(_write(root, content))


def made_pairs(root: Path, commits: Commits) -> ParallelRecipe:
    """Write the shipped translation recipe, and return it."""
    content = _shipped("wmt14_fr_en")
    content |= {"name": "wmt14_made", "source": content["source"] | {"revision": commits[PAIRS_DATASET]}}
    return ParallelRecipe.read(_write(root, content))


def _shipped(name: str) -> dict[str, Any]:
    return read_yaml(PROJECT_RECIPES / f"{name}.yaml")


def _write(root: Path, content: Mapping[str, Any]) -> Path:
    text = yaml.safe_dump(dict(content), sort_keys=False, allow_unicode=True, width=120)
    return _write_text(root, str(content["name"]), text)


def _write_text(root: Path, name: str, text: str) -> Path:
    path = root / "recipes" / f"{name}.yaml"
    durable.make_folder(path.parent)
    durable.write_durably(path, text.encode())
    return path
