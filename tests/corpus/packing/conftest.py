"""What tests of packing share."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # of pack_build, plain_packing

from pack_build import scratch_folder


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder in memory, where there is one."""
    with scratch_folder() as path:
        yield path
