"""Sorted runs: tables on disk, each in the order of its first column, of which a range is read from all together.

A run is an uncompressed Parquet file of small row groups, whose bounds say which of them a range needs. So what has to
be sorted may be larger than memory by far: it is read range by range, and what a range holds is sorted there.
"""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline_assets.corpus.formats.arrow import numbers
from pipeline_assets.corpus.formats.parquet import open_parquet
from pipeline_assets.corpus.spine.building import OutputFile
from pipeline_assets.corpus.spine.durable import DurableFile

_ROW_GROUP_ROWS = 1 << 13
_KEYS = 2**64


def write_run(path: Path, name: str, table: pa.Table) -> OutputFile:
    """A table whose first column, uint64, ascends."""
    key = table.schema.names[0]
    with DurableFile(path) as file:
        pq.write_table(
            table,
            file,
            _ROW_GROUP_ROWS,
            compression="none",
            use_dictionary=False,
            write_statistics=[key],
            write_page_checksum=True,
        )
    return OutputFile.plain(name, table.num_rows, file)


def read_range(runs: Sequence[Path], low: int, high: int, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of all runs with `low <= key < high`, run after run; the key is in `columns`, or they are None."""
    parts: list[pa.Table] = []
    for run in runs:
        with open_parquet(run) as file:
            groups = _groups_of(file.metadata, low, high)
            part = file.read_row_groups(groups, columns=None if columns is None else list(columns), use_threads=False)
        keys = numbers(part.column(0))
        bounds = [np.searchsorted(keys, np.uint64(bound)) if bound < _KEYS else len(keys) for bound in (low, high)]
        parts.append(part.slice(bounds[0], bounds[1] - bounds[0]))
    return pa.concat_tables(parts)


def rows_of(runs: Sequence[Path]) -> int:
    """How many rows runs have together."""
    return sum(pq.read_metadata(run).num_rows for run in runs)


def even_ranges(rows: int, max_rows: int) -> list[tuple[int, int]]:
    """Ranges of keys that are spread evenly, as hashes are, with about `max_rows` of `rows` in each."""
    parts = max(-(-rows // max_rows), 1)
    bounds = [part * _KEYS // parts for part in range(parts + 1)]
    return list(itertools.pairwise(bounds))


def ranges(runs: Sequence[Path], max_rows: int) -> list[tuple[int, int]]:
    """Ranges of keys with at most about `max_rows` in each, by the bounds of row groups; more only of one key."""
    groups = sorted(group for run in runs for group in _group_bounds(run))
    cuts, rows = [0], 0
    for least, group_rows in groups:
        if rows + group_rows > max_rows and least > cuts[-1]:
            cuts.append(least)
            rows = 0
        rows += group_rows
    return list(zip(cuts, [*cuts[1:], _KEYS], strict=True))


def _group_bounds(run: Path) -> Iterator[tuple[int, int]]:
    metadata = pq.read_metadata(run)
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        if group.num_rows:
            yield group.column(0).statistics.min, group.num_rows


def _groups_of(metadata: pq.FileMetaData, low: int, high: int) -> list[int]:
    found = []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        if group.num_rows and group.column(0).statistics.max >= low and group.column(0).statistics.min < high:
            found.append(number)
    return found
