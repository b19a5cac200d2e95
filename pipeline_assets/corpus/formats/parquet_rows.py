"""Lookup of rows in a Parquet file, by number or value."""

import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline_assets.corpus.formats.arrow_columns import string_column, to_bools
from pipeline_assets.corpus.formats.parquet import StoredParquet
from pipeline_assets.corpus.formats.python_columns import to_column
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.plural import pluralize


def read_row(path: Path, row: int, columns: Sequence[str] | None = None) -> dict[str, Any]:
    """Return row `row` (from 0) as {column: value}; raise InputError if missing."""
    first_row = 0
    with StoredParquet(path) as file:
        for group in range(file.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            if row < first_row + rows:
                table = file.read_row_group(group, columns=columns)
                [record] = table.slice(row - first_row, 1).to_pylist()
                return dict(record)
            first_row += rows
    what = f"row {row:,} not found, because the file has {pluralize(first_row, 'row')}"
    raise InputError(what, path, "run `corpusmill verify` on its folder")


def rows_with_text(path: Path, column: str, texts: Collection[str]) -> Iterator[dict[str, Any]]:
    """Yield, in order, all rows whose value in `column` is one of `texts`."""
    import pyarrow.compute as pc

    value_set = string_column(sorted(texts))
    with StoredParquet(path) as file:
        for group in range(file.num_row_groups):
            is_match = pc.is_in(file.read_row_group(group, columns=[column])[column], value_set=value_set)
            if pc.any(is_match).as_py():
                matches: pa.Table = file.read_row_group(group).filter(is_match)
                yield from matches.to_pylist()


def find_row(path: Path, values: Mapping[str, Any]) -> int | None:
    """Return the number of the first row with `values` ({column: value}), or None."""
    import pyarrow.compute as pc

    first_row = 0
    with StoredParquet(path) as file:
        for batch in file.iter_batches(columns=[*values]):
            columns = {name: batch.column(name) for name in values}
            # A scalar from a Python value would import pandas.
            matches = [
                pc.equal(columns[name], to_column([value], columns[name].type)[0]) for name, value in values.items()
            ]
            rows = np.flatnonzero(to_bools(functools.reduce(pc.and_, matches)))
            if len(rows):
                return first_row + int(rows[0])
            first_row += batch.num_rows
    return None
