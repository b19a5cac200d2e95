"""A nemotron recipe built without Dagster."""

from pathlib import Path

from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.recipes.run import Run
from pipeline_assets.corpus.spine.engine import EngineSettings
from pipeline_assets.systems.nemotron import NemotronRecipe
from pipeline_assets.systems.registry import KINDS

SHIPPED = Path(__file__).parents[2] / "manifests" / "recipes" / "nemotron_v1.yaml"


def build(recipe: NemotronRecipe, root: Path, hub: HubFiles, engine: EngineSettings) -> dict[str, str]:
    """Builds all artifacts of a recipe; their digests by role."""
    run = Run(root, engine, hub)
    targets = recipe.targets()
    return {target.role: KINDS[target.kind].build(target, run).manifest.digest for target in targets}


def offline(cache: Path) -> HubFiles:
    """A hub that nobody answers for, and a cache."""
    return HubFiles(cache, endpoint="http://127.0.0.1:9", tries=1)
