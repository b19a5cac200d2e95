"""Fixtures for tests of Nemotron rows."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline_assets.build.run import Run
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.systems.nemotron import NemotronRecipe

Inventories = Callable[..., dict[str, Artifact]]


@pytest.fixture
def inventories(tmp_path: Path) -> Inventories:
    """Return a function that builds the inventory of each split of a folder."""

    def build(folder: Path, *splits: str, max_rows: int | None = None, **section: Any) -> dict[str, Artifact]:
        dataset = {"dataset": "maker/chats", "path": str(folder), "splits": list(splits), **section}
        content = {"system": "nemotron", "name": "chats", "scan": {"max_rows": max_rows}, "datasets": [dataset]}
        recipe = NemotronRecipe.from_mapping(content, "the test")
        run = Run(tmp_path / "root", RunSettings(), replace=True)
        built = {}
        for target in recipe.targets():
            artifact = target.kind.build(target, run)
            built[str(target.partition).rpartition("/")[2]] = artifact
        return built

    return build
