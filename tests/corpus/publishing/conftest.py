"""Fixtures for tests of publishing: a writable hub and pools."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from hub_pools import Place, build_rows, open_place, pools
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
    monkeypatch.setattr(publishing, "check_configs_load", lambda *_: None)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    yield from open_place(tmp_path / "hub")


@pytest.fixture(scope="session")
def build_first(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Artifact]:
    """Return a function that builds pools once for each commit of the dataset."""

    @cache
    def build(revision: str) -> Artifact:
        return pools(tmp_path_factory.mktemp("first"), {"low": build_rows(revision), "high": build_rows(revision, 5)})

    return build


@pytest.fixture
def first(place: Place, tmp_path: Path, build_first: Callable[[str], Artifact]) -> Artifact:
    """Copy the pools of two splits into a folder that a test may change."""
    built = build_first(place.revision)
    return replace(built, folder=shutil.copytree(built.folder, tmp_path / "first" / "pools"))


@pytest.fixture
def second(place: Place, tmp_path: Path) -> Artifact:
    """Return pools with fewer rows, one more split and one pool fewer than `first`."""
    low, high = build_rows(place.revision)[1:], build_rows(place.revision, 5)[:-1]
    rules = {"tool_use": ["stats_tool_calls > 0"], "verified_correct": ["meta_correctness >= 0.9"]}
    return pools(tmp_path / "second", {"low": low, "high": high, "more": build_rows(place.revision, 7)}, rules=rules)
