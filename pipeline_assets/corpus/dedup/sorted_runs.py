"""Sorted runs: tables sorted by their first column, read by ranges of keys.

A run is an uncompressed Parquet file of small row groups. To read a range of keys, only the row groups whose key
statistics overlap it are read. So the data of all runs may exceed memory by far: one range is read and sorted at a
time. The number of ranges depends on memory; the union of their results does not.
"""

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipeline_assets.corpus.dedup.document_order import document_numbers
from pipeline_assets.corpus.formats.arrow_columns import to_arrow, to_numpy, to_table
from pipeline_assets.corpus.formats.parquet import open_parquet
from pipeline_assets.spine.durable import DurableFile
from pipeline_assets.spine.staging import WORK, OutputFile, StagingView

_ROW_GROUP_ROWS = 1 << 13
_PAIRS = f"{WORK}/pairs"
MAX_PAIRS = 1 << 21  # pairs in a run: 32 MiB, and four times as much while they are sorted
_KEYS = 2**64  # exclusive upper bound of all keys
Runs = tuple[Path, ...]


def write_run(folder: StagingView, name: str, table: pa.Table) -> OutputFile:
    """Write a table as a run; its first column must be uint64 and ascend."""
    with DurableFile(folder.path(name)) as file:
        pq.write_table(
            table,
            file,
            _ROW_GROUP_ROWS,
            compression="none",
            use_dictionary=False,
            write_statistics=[table.schema.names[0]],
            write_page_checksum=True,
        )
    return OutputFile.plain(name, table.num_rows, file)


@dataclass(frozen=True)
class KeyRange:
    """Rows of all runs with `low <= key < high`, as a shard of a stage.

    Attributes:
        high: Exclusive upper bound, at most 2**64.
        first_number: Number that document 0 of a signature store has in the corpus, because the store's runs number
            documents from 0; None for runs of the corpus itself.
    """

    low: int
    high: int
    runs: Runs
    first_number: int | None = None

    @property
    def name(self) -> str:
        return f"{self.low:016x}-{self.high:017x}"  # names ascend with the bounds

    @property
    def rows(self) -> int:
        """Number of input rows: 0, because sorted runs are work files."""
        return 0

    def table(self) -> pa.Table:
        """Return the rows, run after run; document numbers are those of the corpus."""
        table = pa.concat_tables(map(self._range_rows, self.runs))
        if self.first_number is None:
            return table
        orders = document_numbers(to_numpy(table["order"])) + np.uint64(self.first_number)
        return table.set_column(table.schema.names.index("order"), "order", to_arrow(orders))

    def _range_rows(self, run: Path) -> pa.Table:
        with open_parquet(run) as file:
            row_groups = _row_group_keys(file.metadata)
            groups = [number for number, keys in row_groups if keys.max >= self.low and keys.min < self.high]
            table = file.read_row_groups(groups, use_threads=False)
        keys = to_numpy(table.column(0))
        start, stop = (
            np.searchsorted(keys, np.uint64(bound)) if bound < _KEYS else len(keys) for bound in (self.low, self.high)
        )
        return table.slice(start, stop - start)


def _row_group_keys(run: pq.FileMetaData) -> Iterator[tuple[int, pq.Statistics]]:
    """Yield the number and the key statistics of each row group that has rows."""
    columns = (run.row_group(number).column(0) for number in range(run.num_row_groups))
    return ((number, column.statistics) for number, column in enumerate(columns) if column.num_values)


def total_rows(runs: Iterable[Path]) -> int:
    """Count the rows of runs."""
    return sum(pq.read_metadata(run).num_rows for run in runs)


def even_ranges(runs: Runs, rows: int, max_rows: int) -> list[KeyRange]:
    """Divide evenly distributed 64-bit keys into ranges of about `max_rows` rows."""
    range_count = max(-(-rows // max_rows), 1)  # rounded up
    bounds = [number * _KEYS // range_count for number in range(range_count + 1)]
    return [KeyRange(low, high, runs) for low, high in itertools.pairwise(bounds)]


def bounded_ranges(runs: Runs, max_rows: int, first_number: int | None = None) -> list[KeyRange]:
    """Divide 64-bit keys of any distribution into ranges of about `max_rows` rows.

    Bounds are lowest keys of row groups, so only the rows of a single key can exceed the limit by far.
    """
    keys = (key for run in runs for _, key in _row_group_keys(pq.read_metadata(run)))
    bounds, rows = [0], 0
    for lowest, group_rows in sorted((key.min, key.num_values) for key in keys):
        if rows + group_rows > max_rows and lowest > bounds[-1]:
            bounds.append(lowest)
            rows = 0
        rows += group_rows
    return [KeyRange(low, high, runs, first_number) for low, high in itertools.pairwise([*bounds, _KEYS])]


def sorted_pairs(keys: NDArray[np.uint64], values: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Sort two columns by key, then by value; fastest if most keys occur once."""
    order = np.argsort(keys)
    keys, values = keys[order], values[order]
    is_repetition = ~is_first_in_group(keys)
    # Sort only the values of repeated keys, because a sort by both columns takes much longer. A row has such a key if
    # the row itself, or the row after it, repeats the key before it.
    repeated = np.flatnonzero(is_repetition | np.append(is_repetition[1:], False))
    # These rows are already grouped by key, so the sort moves values only within their key.
    values[repeated] = values[repeated][np.lexsort((values[repeated], keys[repeated]))]
    return keys, values


def is_first_in_group(*columns: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Return a mask of the rows that begin a group of equal rows in sorted columns."""
    # np.unique would hash the values first, which takes eight times as long.
    is_new = np.ones(len(columns[0]), bool)
    is_new[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return is_new


def distinct_pairs(pairs: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Sort pairs of shape (2, pairs) by first, then second element; omit repetitions."""
    pairs = np.stack(sorted_pairs(*pairs))
    return pairs[:, is_first_in_group(*pairs)]


def write_pairs(folder: StagingView, name: str, pairs: NDArray[np.uint64]) -> OutputFile:
    """Write distinct pairs of later (row 0) and earlier (row 1) documents as a run."""
    later, earlier = distinct_pairs(pairs)
    return write_run(folder, f"{_PAIRS}/{name}.parquet", to_table({"later": later, "earlier": earlier}))
