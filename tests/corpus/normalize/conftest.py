"""Fixtures for tests of normalisation."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from stage_a_build import INLINE, normalize, only, recipe_with

from pipeline_assets.corpus.licences import Licence, LicenceTable
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.staging import StagingView


@pytest.fixture
def normalized(tmp_path: Path) -> Callable[..., Artifact]:
    """Return a function that rewrites a synthetic source and normalizes it."""

    def run(
        name: str,
        written: Mapping[str, str | bytes],
        engine: RunSettings = INLINE,
        root: str = "data",
        **changes: object,
    ) -> Artifact:
        folder = tmp_path / "source"
        for file, content in written.items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_bytes(content if isinstance(content, bytes) else content.encode())
        return normalize(recipe_with(tmp_path, only(name, path=str(folder), **changes)), tmp_path / root, None, engine)

    return run


@pytest.fixture
def folder(tmp_path: Path) -> StagingView:
    (tmp_path / "building").mkdir()
    return StagingView(tmp_path / "building")


@pytest.fixture
def licences() -> LicenceTable:
    """Return the licences cc0-1.0, also written `CC Zero`, and unknown."""

    def licence(tag: str, *aliases: str) -> Licence:
        return Licence(tag, None, tag, None, True, False, False, aliases)

    return LicenceTable([licence("cc0-1.0", "cc zero"), licence("unknown")])
