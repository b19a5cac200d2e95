"""What crash cases start from, and where they work."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from crash_cases import Sources, open_sources


@pytest.fixture(scope="module")
def sources() -> Iterator[Sources]:
    with open_sources() as sources:
        yield sources


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    return tmp_path
