"""Repeated document ids of a whole corpus, found by merging sorted runs of hashes.

A shard's file of ids has a 128-bit hash and a row number per document, in sorted runs of `RUN_IDS`; the last run may be
shorter. The runs of all shards are merged in blocks, so memory does not grow with the number of documents or repeats.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.spine import durable
from pipeline_assets.spine.durable import DurableFile
from pipeline_assets.spine.errors import RetryableError
from pipeline_assets.spine.staging import WORK, OutputFile, StagingView

RUN_IDS = 1 << 17
_ID_DTYPE = np.dtype([("high", "<u8"), ("low", "<u8"), ("row", "<i8")])
_REPEAT_DTYPE = np.dtype([("shard", "<i4"), ("row", "<i8"), ("times", "<u4")])
_REPEATS = f"{WORK}/repeats"
_HASH_BYTES = 16
_BLOCK_IDS = 1 << 15  # per merged block: about 5 MB with the sort's copies
_WINDOW_ROWS = 1 << 16  # rows of a shard per pass over its repeats
_MIN_IDS = 1 << 8  # per read of a run, 6 kB: with fewer, opening files takes longer than merging


class IdsWriter(DurableFile):
    """Writer of a shard's file of document ids, durable after the `with` block."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._hashes = bytearray()
        self._rows = 0

    def add(self, doc_ids: Iterable[str]) -> None:
        """Add the ids of the next rows."""
        for doc_id in doc_ids:
            self._hashes += hashlib.sha256(doc_id.encode("utf-8")).digest()[:_HASH_BYTES]
            if len(self._hashes) == RUN_IDS * _HASH_BYTES:
                self._write_run()

    def finish(self) -> None:
        if self._hashes:
            self._write_run()

    def output(self, name: str) -> OutputFile:
        """Describe the finished file; `name` is its path in the staging directory."""
        return OutputFile.plain(name, self._rows, self)

    def _write_run(self) -> None:
        halves = np.frombuffer(bytes(self._hashes), ">u8").reshape(-1, 2)
        order = np.lexsort((halves[:, 1], halves[:, 0]))  # by high half, then low half; stable, so equal ids by row
        ids = np.empty(len(halves), _ID_DTYPE)
        ids["high"], ids["low"], ids["row"] = halves[order, 0], halves[order, 1], order + self._rows
        self.write(ids.tobytes())
        self._rows += len(ids)
        self._hashes.clear()


def write_ids(path: Path, name: str, doc_ids: Iterable[str]) -> OutputFile:
    """Write a shard's file of ids; `name` is its path in the staging directory."""
    with IdsWriter(path) as writer:
        writer.add(doc_ids)
    return writer.output(name)


def find_repeats(paths: Sequence[Path]) -> Iterator[NDArray[np.void]]:
    """Yield the documents that repeat the id of an earlier document.

    Args:
        paths: Files of `IdsWriter`, one per shard, in manifest order.

    Yields:
        Structured arrays of shape (repeats,), sorted by hash, with the fields `shard` (its number), `row` (its number
        in the shard) and `times`: 2 for the second document with an id, 3 for the third.
    """
    last, last_times = None, 0
    for ids, shards in _merge_runs(paths):
        high, low = ids["high"], ids["low"]
        # Equal ids are adjacent, so a repeat equals its predecessor; the first id's predecessor is in the block before.
        is_repeat = np.empty(len(ids), bool)
        is_repeat[0] = (high[0], low[0]) == last
        is_repeat[1:] = (high[1:] == high[:-1]) & (low[1:] == low[:-1])
        # The running maximum of the positions of first occurrences is, at each id, the position of its own first one.
        places = np.arange(len(ids))
        firsts = np.maximum.accumulate(np.where(is_repeat, 0, places))
        times = places - firsts + 1
        if is_repeat[0]:  # its first occurrence is in an earlier block, which counted `last_times`
            times[firsts == 0] += last_times
        last, last_times = (high[-1], low[-1]), int(times[-1])
        repeats = np.empty(int(is_repeat.sum()), _REPEAT_DTYPE)
        repeats["shard"], repeats["row"], repeats["times"] = shards[is_repeat], ids["row"][is_repeat], times[is_repeat]
        if len(repeats):
            yield repeats


class FirstRepeat(NamedTuple):
    """Shard and row of the first document that repeats an id; number of all repeats."""

    shard: int
    row: int
    repeats: int


def find_first_repeat(paths: Sequence[Path]) -> FirstRepeat | None:
    """Return the first document that repeats an id; None if all ids are unique."""
    first, repeats = None, 0
    for block in find_repeats(paths):
        earliest = block[np.lexsort((block["row"], block["shard"]))[0]]
        place = int(earliest["shard"]), int(earliest["row"])
        first, repeats = min(first or place, place), repeats + len(block)
    return None if first is None else FirstRepeat(*first, repeats)


def write_repeats(paths: Sequence[Path], folder: StagingView) -> list[Path | None]:
    """Write each shard's repeats to a work file; list the paths, None without repeats."""
    written: list[Path | None] = [None] * len(paths)
    for block in find_repeats(paths):
        block = block[np.argsort(block["shard"], kind="stable")]
        shards, firsts = np.unique(block["shard"], return_index=True)
        for shard, repeats in zip(shards.tolist(), np.split(block, firsts[1:]), strict=True):
            path = folder.path(f"{_REPEATS}/{shard:05d}")
            durable.call_failpoint("append", path)
            mode = "wb" if written[shard] is None else "ab"  # overwrite the file of an interrupted build
            with durable.name_file_in_errors(path), open(path, mode) as file:
                file.write(repeats.tobytes())
            written[shard] = path
    return written


def read_occurrences(path: Path | None, rows: int) -> Iterator[int]:
    """Yield for each row the occurrence number of its id: 0 if first, 2 if second.

    `path` is the shard's file of `write_repeats`. The file is sorted by hash, so it is read once per `_WINDOW_ROWS`
    rows.
    """
    for first in range(0, rows, _WINDOW_ROWS):
        times = np.zeros(min(_WINDOW_ROWS, rows - first), np.uint32)
        for block in _read_blocks(path):
            inside = block[(block["row"] >= first) & (block["row"] < first + len(times))]
            times[inside["row"] - first] = inside["times"]
        yield from times.tolist()


def _read_blocks(path: Path | None) -> Iterator[NDArray[np.void]]:
    if path is None:
        return
    with open(path, "rb", buffering=0) as file:
        while len(block := np.fromfile(file, _REPEAT_DTYPE, _BLOCK_IDS)):
            yield block


_MergePosition = tuple[int, int, int]  # order of an id in the merge: both halves of its hash, number of its run


@dataclass
class _Run:
    """Sorted run of ids in a shard's file, which is read and merged part by part.

    Attributes:
        number: Number of the run, in the order of shards and rows.
        start, stop: Bounds of the unread ids in the file.
        ids: Ids that are read but not merged.
    """

    number: int
    shard: int
    path: Path
    start: int
    stop: int
    ids: NDArray[np.void] = field(default_factory=lambda: np.empty(0, _ID_DTYPE))

    @property
    def has_more(self) -> bool:
        return self.start < self.stop

    def read(self, max_ids: int) -> None:
        """Read the next ids if all earlier ids are merged."""
        if len(self.ids) or not self.has_more:
            return
        with open(self.path, "rb", buffering=0) as file:
            file.seek(self.start * _ID_DTYPE.itemsize)
            self.ids = np.fromfile(file, _ID_DTYPE, min(max_ids, self.stop - self.start))
        if not len(self.ids):
            raise RetryableError(f"the file has fewer than {self.stop:,} ids", self.path, "run the command again")
        self.start += len(self.ids)

    @property
    def last_position(self) -> _MergePosition:
        """Position in the merge of the last id that was read."""
        high, low, _ = self.ids[-1].tolist()
        return high, low, self.number

    def consume(self, bound: _MergePosition | None) -> NDArray[np.void]:
        """Remove and return the ids up to a position, or all if `bound` is None."""
        count = len(self.ids)
        if bound is not None and self.last_position > bound:
            high, low, number = bound
            # Find the ids with the bound's high half, then the bound's place among their low halves. An id equal to the
            # bound is before it if its run is before the bound's run.
            start = np.searchsorted(self.ids["high"], np.uint64(high), "left")
            stop = np.searchsorted(self.ids["high"], np.uint64(high), "right")
            lows = self.ids["low"][start:stop]
            count = int(start + np.searchsorted(lows, np.uint64(low), "right" if self.number < number else "left"))
        consumed, self.ids = self.ids[:count], self.ids[count:]
        return consumed


def _merge_runs(paths: Sequence[Path]) -> Iterator[tuple[NDArray[np.void], NDArray[np.int32]]]:
    """Yield blocks of ids sorted by hash, shard and row, and the shard of each id.

    Each run has a last id that was read, and its unread ids are not lower. So all ids up to the lowest of these last
    ids are read, and become a block.
    """
    runs = _open_runs(paths)
    max_ids = max(_BLOCK_IDS // max(len(runs), 1), _MIN_IDS)
    while runs:
        for run in runs:
            run.read(max_ids)
        bound = min((run.last_position for run in runs if run.has_more), default=None)
        parts = [run.consume(bound) for run in runs]
        ids = np.concatenate(parts)
        owners = np.repeat(np.array([run.shard for run in runs], np.int32), list(map(len, parts)))
        runs = [run for run in runs if len(run.ids) or run.has_more]
        order = np.lexsort((ids["row"], owners, ids["low"], ids["high"]))
        yield ids[order], owners[order]


def _open_runs(paths: Sequence[Path]) -> list[_Run]:
    runs: list[_Run] = []
    for shard, path in enumerate(paths):
        ids = path.stat().st_size // _ID_DTYPE.itemsize
        runs += [
            _Run(number, shard, path, start, min(start + RUN_IDS, ids))
            for number, start in enumerate(range(0, ids, RUN_IDS), len(runs))
        ]
    return runs
