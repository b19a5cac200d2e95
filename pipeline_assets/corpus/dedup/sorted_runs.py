"""Sorted runs: tables sorted by their first column, read by ranges of keys.

A run is an Arrow file with checksums, see `formats.checked_table`. A reader maps the file into memory, and verifies
only the blocks of rows that it reads.

An index divides the keys of all runs into ranges. It has two files in the format of runs: one has the paths of the
runs; the other has, for each range, its first row in each run. A task gets the path of the index, not the paths of all
runs. Only one range is read and sorted at a time, so the runs may be much larger than memory. Less memory means more
ranges, but the union of their results is the same.
"""

import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline_assets.corpus.formats.arrow_columns import string_column, to_arrow, to_numpy, to_table
from pipeline_assets.corpus.formats.checked_table import map_checked_table, write_checked_table
from pipeline_assets.spine.staging import WORK_FOLDER, OutputFile, StagingView

_PAIRS_FOLDER = f"{WORK_FOLDER}/pairs"
RUN_PAIRS = 1 << 21  # pairs in a run: 32 MiB, and four times as much while they are sorted
KEYS_STOP = 2**64  # exclusive upper bound of all keys
_INDEX_FILE, _NAMES_FILE, _INDEX_NOUN = "ranges.index", "runs.index", "index of sorted runs"
_SAMPLES_PER_RANGE = 4  # samples of each run for each range, to divide keys
Runs = Sequence[OutputFile]


def write_run(folder: StagingView, name: str, table: pa.Table) -> OutputFile:
    """Write a table as a run; its first column must be uint64 and ascend."""
    return write_checked_table(folder, name, table)


def read_run(path: Path, start: int = 0, stop: int | None = None) -> pa.Table:
    """Map the rows [start, stop) of a run, verified as in `formats.checked_table`."""
    return map_checked_table(path, "sorted run", start, stop)


def read_rows(path: Path, sought_keys: NDArray[np.uint64]) -> pa.Table:
    """Read the rows of a run that have a key in `sought_keys`.

    The keys of the run are unique and ascending; `sought_keys` must be ascending, too.
    """
    table = read_run(path)
    keys = to_numpy(table.column(0))
    rows = np.searchsorted(keys, sought_keys)
    rows, sought_keys = rows[rows < len(keys)], sought_keys[rows < len(keys)]
    return table.take(to_arrow(rows[keys[rows] == sought_keys]))


@dataclass(frozen=True)
class KeyRange:
    """Rows with `low <= key < high` in all runs of an index; the `Shard` of a task.

    Attributes:
        high: Exclusive upper bound, at most 2**64.
        index_file: File with the first row of each range in each run; a file in its folder has the paths of the runs.
        range_number: Position of the range in the index.
    """

    low: int
    high: int
    index_file: Path
    range_number: int

    @property
    def name(self) -> str:
        return f"{self.low:016x}-{self.high:017x}"  # names ascend with the bounds

    @property
    def rows(self) -> int:
        """Always 0, so that the engine does not search the range for poison rows."""
        return 0

    def tables(self) -> Iterator[pa.Table]:
        """Yield the rows as one table per run; omit empty tables, except that of run 0.

        If the index or a run has changed, raise RetryableError in an unfinished build, else InputError.
        """
        names = map_checked_table(self.index_file.with_name(_NAMES_FILE), _INDEX_NOUN)["name"].to_pylist()
        first = self.range_number * len(names)
        rows = map_checked_table(self.index_file, _INDEX_NOUN, first, first + 2 * len(names))["row"]
        starts, stops = to_numpy(rows).reshape(2, -1).tolist()  # a range ends where the next one begins
        for run, (name, start, stop) in enumerate(zip(names, starts, stops, strict=True)):
            if start < stop or run == 0:
                yield read_run(self.index_file.parent / name, start, stop)

    def table(self) -> pa.Table:
        """Return the rows, run after run."""
        return pa.concat_tables(self.tables())


def divide_keys(folder: StagingView, runs: Runs, max_rows: int, uniform_row_count: int = 0) -> list[KeyRange]:
    """Write an index of `runs`; return ranges of keys with about `max_rows` rows each.

    `runs` must not be empty. Pass the number of all rows as `uniform_row_count` if the keys are evenly distributed,
    like hashes. Only a range of a single key can be much larger than `max_rows`.
    """
    range_count = max(-(-uniform_row_count // max_rows), 1)  # rounded up
    bounds = [number * KEYS_STOP // range_count for number in range(range_count + 1)]
    positions = _find_positions(folder, runs, bounds)
    too_large = np.flatnonzero(np.diff(positions.sum(axis=1)) > max_rows * 5 // 4).tolist()
    if too_large:
        every = max(max_rows // (_SAMPLES_PER_RANGE * len(runs)), 1)
        samples: list[list[NDArray[np.uint64]]] = [[] for _ in too_large]
        for run, starts, stops in zip(runs, positions[too_large].T, positions[1:][too_large].T, strict=True):
            keys = _read_keys(folder, run)
            for number, (start, stop) in enumerate(zip(starts.tolist(), stops.tolist(), strict=True)):
                samples[number].append(keys[start:stop:every].copy())
        inner = [_find_bounds(np.sort(np.concatenate(keys)), -(-max_rows // every)) for keys in samples]
        bounds = sorted({*bounds, *itertools.chain.from_iterable(inner)})
        positions = _find_positions(folder, runs, bounds)
    return _write_index(folder, runs, bounds, positions)


def _find_bounds(samples: NDArray[np.uint64], samples_per_range: int) -> list[int]:
    """Divide sorted samples of keys into ranges; return the bounds between them.

    A range has fewer than 1.5 times `samples_per_range` samples. Only a range of one frequent key may have more.
    """
    firsts = np.append(np.flatnonzero(is_first_in_group(samples)), len(samples))
    frequent = samples[firsts[:-1][np.diff(firsts) > samples_per_range // 2]].tolist()
    return [*samples[samples_per_range::samples_per_range].tolist(), *frequent, *(key + 1 for key in frequent)]


def ranges_between(folder: StagingView, runs: Runs, bounds: Sequence[int]) -> Sequence[KeyRange | None]:
    """Write an index of `runs`; return the ranges of keys between adjacent bounds.

    The last bound must exceed all keys. If `runs` is empty, no index is written, and each range is None.
    """
    if not runs:
        return [None] * (len(bounds) - 1)
    return _write_index(folder, runs, bounds, _find_positions(folder, runs, bounds))


def _find_positions(folder: StagingView, runs: Runs, bounds: Sequence[int]) -> NDArray[np.uint32]:
    """Count, for each bound, each run's rows with a lower key; shape (bounds, runs)."""
    positions = np.empty((len(bounds), len(runs)), np.uint32)
    lows = np.array(bounds[:-1], np.uint64)  # the last bound may exceed 64 bits, and no key reaches it
    for number, run in enumerate(runs):
        positions[:-1, number] = np.searchsorted(_read_keys(folder, run), lows)
        positions[-1, number] = run.rows
    return positions


def _read_keys(folder: StagingView, run: OutputFile) -> NDArray[np.uint64]:
    return to_numpy(read_run(folder.path(run.path)).column(0))


def _write_index(
    folder: StagingView, runs: Runs, bounds: Sequence[int], positions: NDArray[np.uint32]
) -> list[KeyRange]:
    """Write the index of runs next to the first run; return the key ranges in it.

    The index has relative paths, because runs may have equal file names in different folders.
    """
    parent = os.path.dirname(runs[0].path)
    names = string_column([os.path.relpath(run.path, parent) for run in runs])
    write_checked_table(folder, f"{parent}/{_NAMES_FILE}", to_table({"name": names}))
    write_checked_table(folder, f"{parent}/{_INDEX_FILE}", to_table({"row": positions.ravel()}))
    index, spans = folder.path(f"{parent}/{_INDEX_FILE}"), enumerate(itertools.pairwise(bounds))
    return [KeyRange(low, high, index, number) for number, (low, high) in spans]


def sorted_pairs(keys: NDArray[np.uint64], values: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Sort two columns by key, then by value; fastest if most keys occur once."""
    order = np.argsort(keys)
    keys, values = keys[order], values[order]
    is_repetition = ~is_first_in_group(keys)
    # Sort only the values of repeated keys, because a sort by both columns takes much longer. A row has such a key if
    # the row before or after it has the same key.
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
    """Write pairs of later and earlier documents as a run, without repetitions.

    `pairs` are priorities, shape (2, pairs).
    """
    later, earlier = distinct_pairs(pairs)
    return write_run(folder, f"{_PAIRS_FOLDER}/{name}.run", to_table({"later": later, "earlier": earlier}))
