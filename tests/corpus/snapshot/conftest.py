"""Fixtures for tests of JSON lines on a hub."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from json_pages import SECTION, Normalize
from stage_a_build import normalize, only, recipe_with

from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.engine import RunSettings


@pytest.fixture
def hub_source(publish: Callable[..., str], hub_files: HubFiles, tmp_path: Path) -> Normalize:
    """Return a function that normalizes published files; keywords change the section."""

    def run(
        published: Mapping[str, bytes], engine: RunSettings | None = None, root: str = "data", **changes: object
    ) -> Artifact:
        section = SECTION | {"files": ["data/*"]} | changes
        recipe = recipe_with(tmp_path, only("pages", **section), publish(published))
        return normalize(recipe, tmp_path / root, hub_files, engine or RunSettings(workers=0))

    return run
