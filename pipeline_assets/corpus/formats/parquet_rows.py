"""Rows of Parquet files found by number or by value, read from their row groups alone."""

import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipeline_assets.corpus.formats.arrow_columns import strings
from pipeline_assets.corpus.formats.parquet import open_parquet
from pipeline_assets.spine.errors import InputError


def row_of_file(path: Path, row: int, columns: Sequence[str] | None = None) -> dict[str, Any]:
    """A row of a Parquet file, or some of its columns, read from its row group alone. Raises InputError where it has
    fewer.
    """
    first_row = 0
    with open_parquet(path) as file:
        for group in range(file.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            if row < first_row + rows:
                table = file.read_row_group(group, columns=columns, use_threads=False)
                [found] = table.slice(row - first_row, 1).to_pylist()
                return dict(found)
            first_row += rows
    raise InputError(f"it has {first_row:,} rows, none is row {row:,}", path, "run `corpusmill verify` on its folder")


def rows_with(path: Path, column: str, texts: Collection[str]) -> Iterator[dict[str, Any]]:
    """Rows that have one of some texts in a column, in order; a row group is in memory at a time."""
    import pyarrow.compute as pc

    wanted = strings(sorted(texts))
    with open_parquet(path) as file:
        for group in range(file.num_row_groups):
            is_wanted = pc.is_in(file.read_row_group(group, columns=[column])[column], value_set=wanted)
            if pc.any(is_wanted).as_py():
                found: pa.Table = file.read_row_group(group).filter(is_wanted)
                yield from found.to_pylist()


def find_in_file(path: Path, values: Mapping[str, Any]) -> int | None:
    """The first row of a Parquet file that has these values, by column; no other column is read."""
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
