"""A project without shipped recipes, for tests with systems of their own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline_assets.spine.lineage import AREAS


@pytest.fixture
def _only_graphs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Shipped recipes are of systems that this test does not have."""
    (tmp_path / "no recipes").mkdir()
    monkeypatch.setattr("pipeline_assets.build.recipe_paths.PROJECT_RECIPES", tmp_path / "no recipes")
    yield
    AREAS.remove("graph")
    AREAS.append("graph")
