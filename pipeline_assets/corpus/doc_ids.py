"""Repeated document ids of a whole corpus, found by merging sorted runs of hashes.

A shard's file of ids has two values for each document: a 128-bit hash of the id, and the row number. The file consists
of sorted runs of `IDS_PER_RUN` documents; the last run may be shorter. The runs of all shards are merged in blocks, so
memory hardly grows with the number of documents or repeats.
"""

import hashlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.spine import durable
from pipeline_assets.spine.durable import DurableFile
from pipeline_assets.spine.errors import RetryableError
from pipeline_assets.spine.staging import WORK_FOLDER, OutputFile, StagingView

IDS_PER_RUN = 1 << 17
_ID_DTYPE = np.dtype([("high", "<u8"), ("low", "<u8"), ("row", "<i8")])
_REPEAT_DTYPE = np.dtype([("shard", "<i4"), ("row", "<i8"), ("times", "<u4")])
_REPEATS_FOLDER = f"{WORK_FOLDER}/repeats"
_HASH_BYTES = 16
_BLOCK_IDS = 1 << 16  # per merged block: about 5 MB with the sort's copies
_WINDOW_ROWS = 1 << 16  # rows of a shard per pass over its repeats
_MIN_READ_IDS = 1 << 7  # per read of a run, 3 kB: with fewer, opening files takes longer than merging


class IdsWriter(DurableFile):
    """Writer of a shard's file of ids, which is durable after the `with` block."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._hashes = bytearray()
        self._rows = 0

    def add(self, doc_ids: Iterable[str]) -> None:
        """Add the ids of the next rows."""
        for doc_id in doc_ids:
            self._hashes += hashlib.sha256(doc_id.encode("utf-8")).digest()[:_HASH_BYTES]
            if len(self._hashes) == IDS_PER_RUN * _HASH_BYTES:
                self._write_run()

    def finish(self) -> None:
        if self._hashes:
            self._write_run()

    def output(self, name: str) -> OutputFile:
        """Describe the finished file; `name` is the file's path in the staging directory."""
        return OutputFile.uncompressed(name, self._rows, self)

    def _write_run(self) -> None:
        halves = np.frombuffer(bytes(self._hashes), ">u8").reshape(-1, 2)
        order = np.lexsort((halves[:, 1], halves[:, 0]))  # by high half, then low half; stable, so equal ids by row
        ids = np.empty(len(halves), _ID_DTYPE)
        ids["high"], ids["low"], ids["row"] = halves[order, 0], halves[order, 1], order + self._rows
        self.write(ids.tobytes())
        self._rows += len(ids)
        self._hashes.clear()


def find_repeats(paths: Sequence[Path]) -> Iterator[NDArray[np.void]]:
    """Yield the documents that repeat the id of an earlier document.

    Args:
        paths: Files of `IdsWriter`, one per shard, in manifest order.

    Yields:
        Structured arrays of shape (repeats,), sorted by hash, with the fields `shard` (index in `paths`), `row` (row
        number in the shard) and `times`: 2 for the second document with an id, 3 for the third.
    """
    last, last_times = None, 0
    for ids, shards in _merge_runs(paths):
        high, low = ids["high"], ids["low"]
        # Equal ids are adjacent, so a repeat equals its predecessor; the first id's predecessor is in the block before.
        is_repeat = np.empty(len(ids), bool)
        is_repeat[0] = (high[0], low[0]) == last
        is_repeat[1:] = (high[1:] == high[:-1]) & (low[1:] == low[:-1])
        # The running maximum of the positions of first occurrences is, at each id, the position of its own first one,
        # or -last_times if that one is in an earlier block.
        positions = np.arange(len(ids))
        times = positions - np.maximum.accumulate(np.where(is_repeat, -last_times, positions)) + 1
        last, last_times = (high[-1], low[-1]), int(times[-1])
        repeats = np.empty(int(is_repeat.sum()), _REPEAT_DTYPE)
        repeats["shard"], repeats["row"], repeats["times"] = shards[is_repeat], ids["row"][is_repeat], times[is_repeat]
        if len(repeats):
            yield repeats


def write_repeats(paths: Sequence[Path], folder: StagingView) -> list[Path | None]:
    """Write each shard's repeats to a file; return the paths (None without repeats)."""
    written: list[Path | None] = [None] * len(paths)
    for block in find_repeats(paths):
        block = block[np.argsort(block["shard"], kind="stable")]
        shards, firsts = np.unique(block["shard"], return_index=True)
        for shard, repeats in zip(shards.tolist(), np.split(block, firsts[1:]), strict=True):
            path = folder.path(f"{_REPEATS_FOLDER}/{shard:05d}")
            durable.call_failpoint("append", path)
            mode = "wb" if written[shard] is None else "ab"  # overwrite the file of an interrupted build
            with durable.name_file_in_errors(path), open(path, mode) as file:
                file.write(repeats.tobytes())
            written[shard] = path
    return written


def read_occurrences(path: Path | None, rows: int) -> Iterator[int]:
    """Yield a number for each row: 0 if its id is new, else 2, 3, … by occurrence.

    The second row with an id yields 2, even if the first row is in an earlier shard. `path` is from `write_repeats`.
    """
    if path is None:
        yield from itertools.repeat(0, rows)
        return
    repeats = path.stat().st_size // _REPEAT_DTYPE.itemsize
    for first in range(0, rows, _WINDOW_ROWS):
        times = np.zeros(min(_WINDOW_ROWS, rows - first), np.uint32)
        for start in range(0, repeats, _BLOCK_IDS):
            block = np.fromfile(path, _REPEAT_DTYPE, _BLOCK_IDS, offset=start * _REPEAT_DTYPE.itemsize)
            inside = block[(block["row"] >= first) & (block["row"] < first + len(times))]
            times[inside["row"] - first] = inside["times"]
        yield from times.tolist()


class _Run(NamedTuple):
    """Sorted run of `id_count` ids, which begins at id `start` of a shard's file."""

    shard: int
    path: Path
    start: int
    id_count: int

    def read(self, start: int, stop: int) -> NDArray[np.void]:
        """Read the ids [start, stop) of the run; RetryableError if the file is too short."""
        ids = np.fromfile(self.path, _ID_DTYPE, stop - start, offset=(self.start + start) * _ID_DTYPE.itemsize)
        if len(ids) < stop - start:
            what = f"the file has fewer than {self.start + stop:,} ids"
            raise RetryableError(what, self.path, "run the command again")
        return ids


_Positions = NDArray[np.int32]  # a position in each run, shape (runs,)
_Block = tuple[NDArray[np.void], NDArray[np.int32]]  # ids sorted by hash, shard and row, and the shard of each


def _merge_runs(paths: Sequence[Path]) -> Iterator[_Block]:
    """Yield all ids in blocks, sorted by hash, shard and row.

    Equally wide ranges of hashes are merged one by one. A range is large only if it has an id with many repeats.
    """
    runs: list[_Run] = []
    for shard, path in enumerate(paths):
        ids = path.stat().st_size // _ID_DTYPE.itemsize
        runs += [_Run(shard, path, start, min(IDS_PER_RUN, ids - start)) for start in range(0, ids, IDS_PER_RUN)]
    max_ids = max(_BLOCK_IDS, len(runs) * _MIN_READ_IDS)
    ranges = -(-sum(run.id_count for run in runs) // max_ids)  # rounded up
    bounds = np.array([number * 2**64 // ranges for number in range(ranges)], np.uint64)
    positions = np.empty((ranges + 1, len(runs)), np.int32)
    for number, run in enumerate(runs):
        positions[:-1, number] = np.searchsorted(run.read(0, run.id_count)["high"], bounds)
        positions[-1, number] = run.id_count
    for starts, stops in itertools.pairwise(positions):
        yield from _merge_range(runs, starts, stops, 2 * max_ids)


def _merge_range(runs: Sequence[_Run], starts: _Positions, stops: _Positions, max_ids: int) -> Iterator[_Block]:
    """Merge the ids [start, stop) of the runs; yield sorted blocks of up to `max_ids`."""
    sizes = stops - starts
    if sizes.sum() <= max_ids:
        if sizes.any():
            yield _sort_range(runs, starts, stops)
        return
    # Some id has many repeats: probably the middle one. Its repeats need no sort: each run has them in order.
    longest = int(np.argmax(sizes))
    middle = int(starts[longest] + stops[longest]) // 2
    repeated = runs[longest].read(middle, middle + 1)[0]
    spans = zip(runs, starts.tolist(), stops.tolist(), strict=True)
    found = [_find_id(run.read(start, stop), repeated) for run, start, stop in spans]
    firsts, lasts = starts + np.array(found, np.int32).T
    yield from _merge_range(runs, starts, firsts, max_ids)
    for run, first, last in zip(runs, firsts.tolist(), lasts.tolist(), strict=True):
        for start in range(first, last, max_ids):
            repeats = run.read(start, min(start + max_ids, last))
            yield repeats, np.full(len(repeats), run.shard, np.int32)
    yield from _merge_range(runs, lasts, stops, max_ids)


def _find_id(ids: NDArray[np.void], sought: np.void) -> tuple[int, int]:
    """Find the ids equal to `sought` in sorted `ids`; return their start and stop."""
    start, stop = (int(np.searchsorted(ids["high"], sought["high"], side)) for side in ("left", "right"))
    lows = ids["low"][start:stop]
    first, last = (start + int(np.searchsorted(lows, sought["low"], side)) for side in ("left", "right"))
    return first, last


def _sort_range(runs: Sequence[_Run], starts: _Positions, stops: _Positions) -> _Block:
    spans = zip(runs, starts.tolist(), stops.tolist(), strict=True)
    ids = np.concatenate([run.read(start, stop) for run, start, stop in spans if start < stop])
    shards = np.repeat(np.array([run.shard for run in runs], np.int32), stops - starts)
    # This sort is not stable, so sort the few ids again whose high half is not unique. Ids with equal hashes are in the
    # order of shards and rows in `ids`.
    order = np.argsort(ids["high"])
    high = ids["high"][order]
    is_equal = high[1:] == high[:-1]
    ties = np.flatnonzero(np.append(is_equal, False) | np.append(False, is_equal))
    order[ties] = order[ties][np.lexsort((order[ties], ids["low"][order[ties]], high[ties]))]
    return ids[order], shards[order]
