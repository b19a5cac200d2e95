"""Folders as a hub has them, made of small splits; a writable hub, and pools to publish there."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hub_pools import Place, open_place, pools, rows_of
from huggingface_hub import constants

from pipeline_assets.corpus.publishing import publish as publishing
from pipeline_assets.spine.artifact import Artifact


@pytest.fixture(autouse=True)
def quiet_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", True)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", False)
    monkeypatch.delenv("HF_HUB_DISABLE_XET", raising=False)
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")


@pytest.fixture
def unloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Publish without the process that loads the result."""
    monkeypatch.setattr(publishing, "load_back", lambda *_: None)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    yield from open_place(tmp_path / "hub")


@pytest.fixture
def first(place: Place, tmp_path: Path) -> Artifact:
    return pools(tmp_path / "first", {"low": rows_of(place.revision), "high": rows_of(place.revision, 5)})
