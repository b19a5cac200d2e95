"""Fixtures for tests of resources: a loopback hub and its clients."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from faulty_hub import FaultyHub
from huggingface_hub import HfApi, constants


@pytest.fixture(autouse=True)
def quiet_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", True)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_IMPLICIT_TOKEN", True)
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    from loopback_repo import write_stories

    return write_stories(tmp_path / "hub")


@pytest.fixture
def hub(repo: Path, tmp_path: Path) -> Iterator[FaultyHub]:
    with FaultyHub(tmp_path / "hub") as running:
        yield running


@pytest.fixture
def api(hub: FaultyHub) -> HfApi:
    return HfApi(endpoint=hub.endpoint, token=False)


@pytest.fixture
def known(hub: FaultyHub) -> HfApi:
    """Return a client with a token."""
    return HfApi(endpoint=hub.endpoint, token="hf_any")
