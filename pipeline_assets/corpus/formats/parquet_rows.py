"""Lookup of Parquet rows by number or value, reading only some row groups."""

import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipeline_assets.corpus.formats.arrow_columns import string_column
from pipeline_assets.corpus.formats.parquet import open_parquet
from pipeline_assets.spine.errors import InputError


def read_row(path: Path, row: int, columns: Sequence[str] | None = None) -> dict[str, Any]:
    """Read a row of a Parquet file, all columns by default, from its row group."""
    first_row = 0
    with open_parquet(path) as file:
        for group in range(file.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            if row < first_row + rows:
                table = file.read_row_group(group, columns=columns, use_threads=False)
                [record] = table.slice(row - first_row, 1).to_pylist()
                return dict(record)
            first_row += rows
    what = f"row {row:,} not found, because the file has {first_row:,} rows"
    raise InputError(what, path, "run `corpusmill verify` on its folder")


def rows_with_text(path: Path, column: str, texts: Collection[str]) -> Iterator[dict[str, Any]]:
    """Yield the rows whose value in a column is one of `texts`, by row group."""
    import pyarrow.compute as pc

    value_set = string_column(sorted(texts))
    with open_parquet(path) as file:
        for group in range(file.num_row_groups):
            is_match = pc.is_in(file.read_row_group(group, columns=[column])[column], value_set=value_set)
            if pc.any(is_match).as_py():
                matches: pa.Table = file.read_row_group(group).filter(is_match)
                yield from matches.to_pylist()


def find_row(path: Path, values: Mapping[str, Any]) -> int | None:
    """Find the number of the first row with these values by column; None if missing."""
    import pyarrow.compute as pc

    first_row = 0
    with open_parquet(path) as file:
        for batch in file.iter_batches(columns=[*values], use_threads=False):
            matches = [pc.equal(batch.column(name), value) for name, value in values.items()]
            found: int = pc.index(functools.reduce(pc.and_, matches), True).as_py()
            if found >= 0:
                return first_row + found
            first_row += batch.num_rows
    return None
