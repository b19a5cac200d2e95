"""Fixtures for tests of the spine."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline_assets.spine import folder_exchange
from pipeline_assets.spine.opening import open_staging_dir
from pipeline_assets.spine.staging import StagingDir


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "words"


@pytest.fixture(params=["exchange", "no exchange"])
def system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run with and without an exchange of folders in one step."""
    if request.param == "no exchange":
        monkeypatch.setattr(folder_exchange, "exchange", lambda first, second: False)
    return str(request.param)


@pytest.fixture
def building(tmp_path: Path) -> Iterator[StagingDir]:
    """Open a staging directory for words."""
    with open_staging_dir(tmp_path / "words", {}) as building:
        yield building
