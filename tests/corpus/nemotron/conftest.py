"""What tests of Nemotron rows share, and those of inventories: building these, and reading what came out."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline_assets.corpus.recipes.run import Run
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.engine import RunSettings
from pipeline_assets.systems.nemotron import NemotronRecipe
from pipeline_assets.systems.registry import KINDS

sys.path.insert(0, str(Path(__file__).parent))  # of rows_made, real_rows

Inventories = Callable[..., dict[str, Artifact]]


@pytest.fixture
def inventories(tmp_path: Path) -> Inventories:
    """Builds the inventory of each split of a folder: `inventories(folder, "low", max_rows=5)`."""

    def build(folder: Path, *splits: str, max_rows: int | None = None, **section: Any) -> dict[str, Artifact]:
        dataset = {"dataset": "maker/chats", "path": str(folder), "splits": list(splits), **section}
        content = {"system": "nemotron", "name": "chats", "scan": {"max_rows": max_rows}, "datasets": [dataset]}
        recipe = NemotronRecipe.of(content, "the test")
        run = Run(tmp_path / "root", RunSettings(), replace=True)
        built = {}
        for target in recipe.targets():
            artifact = KINDS[target.kind].build(target, run)
            built[str(target.partition).rpartition("/")[2]] = artifact
        return built

    return build


@pytest.fixture
def told() -> Callable[[Artifact], dict[str, Any]]:
    """What the `inventory.json` of an artifact says of its one split."""

    def said(artifact: Artifact) -> dict[str, Any]:
        [(dataset, of_dataset)] = json.loads(artifact.path("inventory.json").read_bytes()).items()
        [(split, of_split)] = of_dataset["splits"].items()
        return {"dataset": dataset, "split": split, **of_split}

    return said
