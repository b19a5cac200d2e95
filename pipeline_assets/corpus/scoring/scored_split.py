"""Scores of a split, joined with the scored rows of the pool files."""

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline_assets.corpus.formats.arrow_columns import to_arrow, to_numpy
from pipeline_assets.corpus.formats.parquet import StoredParquet, open_parquet
from pipeline_assets.corpus.formats.python_columns import nan_to_null
from pipeline_assets.spine.errors import InputError, one_line


@dataclass(frozen=True)
class ScoredSplit:
    """Scores of a split, and the pool files with the scored rows."""

    name: str  # `dataset/split`
    scores_file: Path  # Parquet file with the columns of `SCORES_SCHEMA`, ordered by (`pool_file`, `pool_row`)
    pool_files: Mapping[str, Path]  # by their names in the column `pool_file`
    decisions: Mapping[str, Any] = field(default_factory=dict)  # of the scores' manifest: `model` and `how_sure`

    def rows(self, columns: Sequence[str], pool_columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield scores joined with columns of the pool files, in the order of the scores.

        Each table has the scored rows of one row group of a pool file. Columns that the file lacks contain only nulls,
        and NaN in a pool file is null: it would pass conditions such as `meta_correctness >= 0.5`.
        """
        with StoredParquet(self.scores_file) as scores:
            names = [*dict.fromkeys([*columns, "pool_file", "pool_row"])]
            for file, runs in itertools.groupby(_group_by_file(scores, names), key=lambda run: run[0]):
                yield from _join_scores(self.pool_files[file], [table for _, table in runs], pool_columns)


def _group_by_file(scores: StoredParquet, columns: Sequence[str]) -> Iterator[tuple[str, pa.Table]]:
    """Yield a (pool file, table) pair for each run of rows with the same pool file."""
    for table in scores.iter_row_groups(columns):
        files = table["pool_file"].to_pylist()
        start = 0
        for file, run in itertools.groupby(files):
            length = sum(1 for _ in run)
            yield file, table.slice(start, length)
            start += length


def _join_scores(pool_path: Path, tables: Sequence[pa.Table], columns: Sequence[str]) -> Iterator[pa.Table]:
    table, first = pa.concat_tables(tables), 0
    for pool_table in read_pool_rows(pool_path, to_numpy(table["pool_row"]), columns):
        joined = table.slice(first, len(pool_table))
        first += len(joined)
        for name in columns:
            if name not in joined.column_names:
                values = pool_table[name] if name in pool_table.column_names else pa.nulls(len(joined))
                joined = joined.append_column(name, nan_to_null(values))
        yield joined


def read_pool_rows(path: Path, row_numbers: NDArray[np.int64], columns: Iterable[str]) -> Iterator[pa.Table]:
    """Yield the requested rows of a pool file, as one table per row group.

    `row_numbers` are ascending row numbers. Missing columns are omitted; if all are missing, tables have the file's
    first column. If the file lacks some of these rows, `InputError` is raised after the last table.
    """
    first = rows_read = 0
    with open_parquet(path) as file:
        present = [name for name in dict.fromkeys(columns) if name in file.schema_arrow.names]
        present = present or file.schema_arrow.names[:1]
        for group in range(file.num_row_groups):
            stop = first + file.metadata.row_group(group).num_rows
            # The requested rows in [first, stop), counted from the start of the row group.
            inside = row_numbers[np.searchsorted(row_numbers, first) : np.searchsorted(row_numbers, stop)] - first
            if len(inside):
                with wrap_read_errors(path):
                    table = file.read_row_group(group, present, use_threads=False)
                yield table.take(to_arrow(inside))
            first, rows_read = stop, rows_read + len(inside)
    if rows_read < len(row_numbers):
        what = f"row {row_numbers[0 if row_numbers[0] < 0 else -1]:,} was scored, but the file has only {first:,} rows"
        raise InputError(what, path, "run `corpusmill verify` on its folder")


@contextlib.contextmanager
def wrap_read_errors(path: Path) -> Iterator[None]:
    """Convert pyarrow's errors in a `with` block to an InputError on a damaged file."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        what = f"rows cannot be read ({one_line(error, 120)})"
        raise InputError(what, path, "the file is damaged; write it again") from None
