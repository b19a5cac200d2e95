"""Stage A of made sources, built without Dagster, for the tests of commands that look at what lies there."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from stage_a_sources import source_named, write_recipe

from pipeline_assets.corpus.readers.hub_files import CACHE_FOLDER, HubFiles
from pipeline_assets.corpus.recipes.run import Run
from pipeline_assets.corpus.spine.engine import EngineSettings
from pipeline_assets.systems.registry import KINDS
from pipeline_assets.systems.stage_a import StageARecipe

NO_HUB = "http://127.0.0.1:9"


def build(recipe: Path, root: Path, endpoint: str = NO_HUB) -> None:
    """Every artifact of a recipe, below a data root."""
    run = Run(root, EngineSettings(workers=0), HubFiles(root / CACHE_FOLDER, endpoint=endpoint))
    for target in StageARecipe.read(recipe).targets():
        KINDS[target.kind].build(target, run)


def of_sources(*names: str, **changes: Mapping[str, object]) -> Callable[[dict[str, Any]], None]:
    """A change of the recipe: these sources only; `notes={"license_tag": "mit"}` changes keys of a source."""

    def change(content: dict[str, Any]) -> None:
        content["sources"] = [source_named(content, name) for name in names]
        for name, keys in changes.items():
            source_named(content, name).update(keys)

    return change


def write_notes_recipe(root: Path, name: str = "mixed", **changes: object) -> Path:
    """A recipe of the local notes alone, which needs no hub; `changes` are keys of its one source."""
    return write_recipe(root, "0" * 40, of_sources("notes", notes=changes), name)


def step(root: Path, name: str, source: str, recipe: str = "mixed") -> Path:
    """The folder of `raw`, `normalized`, `filtered` of a source."""
    return root / "stage_a" / recipe / name / source
