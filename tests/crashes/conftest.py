"""Fixtures for tests of crashes."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from crash_cases import Sources, open_sources, without_git


@pytest.fixture(scope="session")
def opened() -> Iterator[Sources]:
    with open_sources() as sources:
        yield sources


@pytest.fixture(scope="module")
def sources(opened: Sources) -> Iterator[Sources]:
    """Share the sources and their builds among modules, which only read them."""
    with without_git():
        yield opened


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    return tmp_path
