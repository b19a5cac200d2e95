"""Recipes of the demo: shipped recipes, reduced and pinned to generated datasets."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from pipeline_assets.build.recipe_paths import PROJECT_RECIPES_FOLDER
from pipeline_assets.demo.corpora import EDU_DATASET, HANDBOOK_DATASET, PAIRS_DATASET
from pipeline_assets.spine import durable
from pipeline_assets.spine.recipe_yaml import read_yaml
from pipeline_assets.systems.healing import HealingRecipe
from pipeline_assets.systems.nemotron import NemotronRecipe
from pipeline_assets.systems.parallel_text import ParallelRecipe
from pipeline_assets.systems.stage2_mixture import Stage2Recipe
from pipeline_assets.systems.stage_a import StageARecipe

Commits = Mapping[str, str]
_STAGE_A_FILE = Path(__file__).with_name("stage_a.yaml")
_TOKEN_BUDGET = 244_500  # both splits come within 1 % of their budgets
_TEXT_BYTES = 2_150_000  # 1.4 times 6.3 bytes per token; small corpora vary more
_MAX_DOCUMENTS = 2000  # per source of the mixture


def write_healing_recipe(root: Path, commits: Commits) -> HealingRecipe:
    """Write and return a copy of the shipped healing recipe, changed for the demo."""
    content = _read_shipped("healing_text_v1")
    content["snapshot"] |= {
        "revision": commits[EDU_DATASET],
        "amount": {"text_bytes": _TEXT_BYTES},
        "shard_text_bytes": 262_144,
        "license_tag": "cc0-1.0",
    }
    content["megatron"]["token_budget"] = _TOKEN_BUDGET
    return HealingRecipe.read(_write_recipe(root, content))


def write_stage_a_recipe(root: Path, commits: Commits) -> StageARecipe:
    """Write and return a recipe with every step of stage A."""
    text = _STAGE_A_FILE.read_text(encoding="utf-8").replace("COMMIT", commits[HANDBOOK_DATASET])
    return StageARecipe.read(_write_recipe_text(root, "stage_a_v1", text))


def write_nemotron_recipe(root: Path, commits: Commits) -> NemotronRecipe:
    """Write and return the shipped Nemotron recipe, changed to publish on loopback."""
    content = _read_shipped("nemotron_v1") | {"name": "nemotron_made"}
    content["datasets"] = [section | {"revision": commits[section["dataset"]]} for section in content["datasets"]]
    content["rows"] |= {"max_reject_fraction": "0.2"}
    # Generated rows have no licence.
    content["publish"] = {"repo": "loopback/{dataset}-pools", "allow_unknown_licences": True}
    return NemotronRecipe.read(_write_recipe(root, content))


def write_mixture_recipe(root: Path, commits: Commits) -> Stage2Recipe:
    """Write and return the filtered mixture's recipe, reduced and with two segments."""
    content = _read_shipped("refinedweb_mixture_filtered") | {"name": "mixture_made", "shard_text_bytes": 1 << 17}
    for section in content["sources"]:
        section |= {"revision": commits[section["dataset"]], "amount": {"documents": _MAX_DOCUMENTS}}
        if section["source"] == "code":
            section["files"] = ["python/*.parquet"]
    content["tokenizer"] |= {"vocab_size": 700, "sample_bytes": 400_000}
    content["shards"] |= {"seq_len": 512, "rows_per_shard": 64}
    halves = {"refinedweb": "0.5", "wikipedia_en": "0.5"}
    segments = [{"name": name, "tokens": 8192, "weights": halves} for name in ("first", "next")]
    content["segments"] = {"segments": segments}
    return Stage2Recipe.read(_write_recipe(root, content))


def write_parallel_recipe(root: Path, commits: Commits) -> ParallelRecipe:
    """Write and return the shipped translation recipe."""
    content = _read_shipped("wmt14_fr_en")
    content |= {"name": "wmt14_made", "source": content["source"] | {"revision": commits[PAIRS_DATASET]}}
    return ParallelRecipe.read(_write_recipe(root, content))


def _read_shipped(name: str) -> dict[str, Any]:
    return read_yaml(PROJECT_RECIPES_FOLDER / f"{name}.yaml")


def _write_recipe(root: Path, content: Mapping[str, Any]) -> Path:
    text = yaml.safe_dump(dict(content), sort_keys=False, allow_unicode=True, width=120)
    return _write_recipe_text(root, str(content["name"]), text)


def _write_recipe_text(root: Path, name: str, text: str) -> Path:
    path = root / "recipes" / f"{name}.yaml"
    durable.make_folder(path.parent)
    durable.write_durably(path, text.encode())
    return path
