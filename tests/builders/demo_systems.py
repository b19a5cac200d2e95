"""The demo's corpora of five systems, built with any engine and without Dagster."""

from collections.abc import Callable, Mapping
from pathlib import Path

from pipeline_assets.build.recipe import Recipe
from pipeline_assets.build.run import Run
from pipeline_assets.build.run_targets import run_targets
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.demo import recipes
from pipeline_assets.demo.corpora import write_inputs
from pipeline_assets.demo.loopback_hub import HUB_FOLDER, LoopbackHub
from pipeline_assets.spine.engine import RunSettings

WRITE_RECIPE: Mapping[str, Callable[..., Recipe]] = {
    "healing": recipes.write_healing_recipe,
    "stage_a": recipes.write_stage_a_recipe,
    "nemotron": recipes.write_nemotron_recipe,
    "stage2": recipes.write_mixture_recipe,
    "parallel_text": recipes.write_parallel_recipe,
}


def build_system(system: str, root: Path, settings: RunSettings) -> dict[str, str]:
    """Build the missing artifacts of a system's demo; return all digests by role."""
    write_inputs(root, system)
    with LoopbackHub(root / HUB_FOLDER) as hub:
        recipe = WRITE_RECIPE[system](root, hub.commits())
        run = Run(root, settings, HubFiles(root / "hub_cache", endpoint=hub.endpoint), publishes=False)
        digests = {}
        for outcome in run_targets(recipe.targets(), run):
            assert outcome.manifest is not None, outcome.target.role
            digests[outcome.target.role] = outcome.manifest.digest
    return digests
