"""Paths of real samples for tests.

Only `make test-real` passes the folder of real samples.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

import pytest

Item = TypeVar("Item")
VARIABLE = "CORPUSMILL_TEST_SAMPLES"


def sample(name: str) -> Path:
    """Return the path of a sample; fail if no folder of samples is set."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        pytest.fail(f"{VARIABLE} is not set; run `make test-real SAMPLES=FOLDER`", pytrace=False)
    return Path(folder, name)


def some(items: Iterable[Item]) -> list[Item]:
    """Return the items that a test loops over; fail without any."""
    listed = list(items)
    assert listed, "the test needs at least one item"
    return listed
