"""Fixtures for tests of packing."""

from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path
