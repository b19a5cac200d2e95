"""Columns that hold what no Python string can."""

from collections.abc import Callable, Sequence

import pyarrow as pa
import pytest


@pytest.fixture
def text_column() -> Callable[[Sequence[bytes | None]], pa.Array]:
    """A string column of raw bytes, UTF-8 or not, as a careless writer leaves it."""

    def column(values: Sequence[bytes | None]) -> pa.Array:
        return pa.array(values, pa.binary()).view(pa.string())

    return column
