"""Fixtures for tests of events: a built data root and scans of it."""

from pathlib import Path

import dagster as dg
import pytest
from sealed_scans import LOADED, Scan, load_sensor, run_kinds

from pipeline_assets.build import recipe_paths


@pytest.fixture
def has_shipped() -> bool:
    """Decide whether a scan loads the shipped recipes too; a test may override it."""
    return False


@pytest.fixture(autouse=True)
def _recipes(has_shipped: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hide the shipped recipes, which take five of six seconds of a scan."""
    if not has_shipped:
        monkeypatch.setattr(recipe_paths, "PROJECT_RECIPES_FOLDER", tmp_path / "none")


@pytest.fixture
def root(notes_root: Path) -> Path:
    run_kinds(notes_root)
    return notes_root


@pytest.fixture
def scan(root: Path, instance: dg.DagsterInstance) -> Scan:
    cursor: list[str | None] = [None]
    LOADED.clear()

    def tick() -> str:
        sensor = load_sensor(root)
        with dg.build_sensor_context(instance=instance, cursor=cursor[0]) as context:
            data = sensor.evaluate_tick(context)
        cursor[0] = data.cursor
        return str(data.skip_message)

    return tick
