"""What tests of packing share."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # of pack_build, plain_packing


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path
