"""A project without shipped recipes, for tests with systems of their own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline_assets.spine.areas import AREAS


@pytest.fixture
def _only_graphs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Hide shipped recipes, and treat folders named `graph` as artifacts."""
    (tmp_path / "no recipes").mkdir()
    monkeypatch.setattr("pipeline_assets.build.recipe_paths.PROJECT_RECIPES_FOLDER", tmp_path / "no recipes")
    AREAS.append("graph")
    yield
    AREAS.remove("graph")
