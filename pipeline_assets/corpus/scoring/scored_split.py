"""Scores of a split joined with the pool rows that they belong to."""

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline_assets.corpus.formats.arrow_columns import numbers, to_array
from pipeline_assets.corpus.formats.parquet import open_parquet
from pipeline_assets.spine.errors import InputError, one_line


@dataclass(frozen=True)
class ScoredSplit:
    """The scores of a split, and the rows that they are of.

    Attributes:
        name: `dataset/split`.
        scores: the Parquet file, columns `SCORES`, rows by (`pool_file`, `pool_row`).
        pool_files: where the files lie that `pool_file` names; they may have more rows, and more columns, than asked.
        decisions: what the manifest of the scores says of the model and of how sure scores are.
    """

    name: str
    scores: Path
    pool_files: Mapping[str, Path]
    decisions: Mapping[str, Any] = field(default_factory=dict)

    def rows(self, columns: Sequence[str], pool_columns: Sequence[str]) -> Iterator[pa.Table]:
        """Scores beside columns of the pools, in the order of the scores, a row group of a pool at a time.

        A column that a pool doesn't have is null, of type null.

        Raises:
            InputError: as `pool_rows`.
        """
        with open_parquet(self.scores) as scores:
            names = [*dict.fromkeys([*columns, "pool_file", "pool_row"])]
            for file, runs in itertools.groupby(_by_file(scores, names), key=lambda run: run[0]):
                yield from _join_scores(self.pool_files[file], [table for _, table in runs], pool_columns)


def _by_file(scores: Any, columns: Sequence[str]) -> Iterator[tuple[str, pa.Table]]:
    """Runs of rows that are of one file of the pools."""
    for group in range(scores.num_row_groups):
        table = scores.read_row_group(group, columns=list(columns), use_threads=False)
        files = table["pool_file"].to_pylist()
        start = 0
        for file, run in itertools.groupby(files):
            length = sum(1 for _ in run)
            yield file, table.slice(start, length)
            start += length


def _join_scores(path: Path, runs: Sequence[pa.Table], columns: Sequence[str]) -> Iterator[pa.Table]:
    table, given = pa.concat_tables(runs), 0
    for of_pool in pool_rows(path, numbers(table["pool_row"]), columns):
        asked = table.slice(given, len(of_pool))
        given += len(asked)
        for name in columns:
            if name not in asked.column_names:
                there = name in of_pool.column_names
                asked = asked.append_column(name, of_pool[name] if there else pa.nulls(len(asked)))
        yield asked


def pool_rows(path: Path, rows: NDArray[np.int64], columns: Iterable[str]) -> Iterator[pa.Table]:
    """Rows of a file of pools, a row group at a time, with those of the columns that it has, or else its first.

    Args:
        rows: their numbers, ascending, shape (rows,).
    Raises:
        InputError: the file is damaged, or has fewer rows; this in the end.
    """
    first = given = 0
    with open_parquet(path) as file:
        there = [name for name in dict.fromkeys(columns) if name in file.schema_arrow.names]
        there = there or file.schema_arrow.names[:1]
        for group in range(file.num_row_groups):
            stop = first + file.metadata.row_group(group).num_rows
            inside = rows[np.searchsorted(rows, first) : np.searchsorted(rows, stop)] - first
            if len(inside):
                with wrap_read_errors(path):
                    table = file.read_row_group(group, there, use_threads=False)
                yield table.take(to_array(inside))
            first, given = stop, given + len(inside)
    if given < len(rows):
        what = f"it has {first:,} rows, and row {rows[0 if rows[0] < 0 else -1]:,} was scored"
        raise InputError(what, path, "run `corpusmill verify` on its folder")


@contextlib.contextmanager
def wrap_read_errors(path: Path) -> Iterator[None]:
    """Raise InputError in place of what pyarrow raises in the block where a file of pools is damaged."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        what = f"its rows can't be read ({one_line(error, 120)})"
        raise InputError(what, path, "the file is damaged: write it again") from None
