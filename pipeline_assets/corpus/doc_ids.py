"""Repeated document ids of a whole corpus.

A shard's file of ids has hashes of 128 bits with their rows, in sorted runs of `RUN_IDS`; the last run may be shorter.
The runs of all shards are merged in blocks, so memory does not grow with the number of documents or repeats.
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
    """Writer of a shard's document ids in row order; durable after its block."""

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
        """Return the finished file under its name in the staging directory."""
        return OutputFile.plain(name, self._rows, self)

    def _write_run(self) -> None:
        halves = np.frombuffer(bytes(self._hashes), ">u8").reshape(-1, 2)
        order = np.lexsort((halves[:, 1], halves[:, 0]))  # of equal ids, the first row comes first
        ids = np.empty(len(halves), _ID_DTYPE)
        ids["high"], ids["low"], ids["row"] = halves[order, 0], halves[order, 1], order + self._rows
        self.write(ids.tobytes())
        self._rows += len(ids)
        self._hashes.clear()


def write_ids(path: Path, name: str, doc_ids: Iterable[str]) -> OutputFile:
    """Write a shard's document ids as a file of this name in the staging directory."""
    with IdsWriter(path) as writer:
        writer.add(doc_ids)
    return writer.output(name)


def repeated_ids(paths: Sequence[Path]) -> Iterator[NDArray[np.void]]:
    """Yield blocks of the documents whose id occurs in an earlier document.

    "Earlier" means shard order, then row order. The documents come in the order of their hashes.

    Args:
        paths: Files of `IdsWriter`, one per shard, in manifest order.

    Returns:
        Blocks of shape (repeats,) with the number of the `shard`, the `row` in it, and `times`: 2 for the second
        document of its id, and so on.
    """
    last, last_times = None, 0
    for ids, shards in _merged(paths):
        high, low = ids["high"], ids["low"]
        # Equal ids are adjacent: a repeat equals its predecessor, which for the first id is in the block before.
        is_repeat = np.empty(len(ids), bool)
        is_repeat[0] = (high[0], low[0]) == last
        is_repeat[1:] = (high[1:] == high[:-1]) & (low[1:] == low[:-1])
        # The position of the latest first occurrence, and the distance from it.
        places = np.arange(len(ids))
        firsts = np.maximum.accumulate(np.where(is_repeat, 0, places))
        times = places - firsts + 1
        if is_repeat[0]:  # the block continues an id of the one before
            times[firsts == 0] += last_times
        last, last_times = (high[-1], low[-1]), int(times[-1])
        repeats = np.empty(int(is_repeat.sum()), _REPEAT_DTYPE)
        repeats["shard"], repeats["row"], repeats["times"] = shards[is_repeat], ids["row"][is_repeat], times[is_repeat]
        if len(repeats):
            yield repeats


class FirstRepeat(NamedTuple):
    """First document that repeats an id, and the number of all such documents."""

    shard: int
    row: int
    repeats: int


def first_repeat(paths: Sequence[Path]) -> FirstRepeat | None:
    """Return the first document that repeats an id; None if all ids are unique."""
    first, repeats = None, 0
    for block in repeated_ids(paths):
        earliest = block[np.lexsort((block["row"], block["shard"]))[0]]
        place = int(earliest["shard"]), int(earliest["row"])
        first, repeats = min(first or place, place), repeats + len(block)
    return None if first is None else FirstRepeat(*first, repeats)


def write_repeats(paths: Sequence[Path], folder: StagingView) -> list[Path | None]:
    """Write the repeats of each shard as a work file for `read_repeats`.

    Existing files are overwritten. The result has None for a shard without repeats.
    """
    written: list[Path | None] = [None] * len(paths)
    for block in repeated_ids(paths):
        block = block[np.argsort(block["shard"], kind="stable")]
        shards, firsts = np.unique(block["shard"], return_index=True)
        for shard, repeats in zip(shards.tolist(), np.split(block, firsts[1:]), strict=True):
            path = folder.path(f"{_REPEATS}/{shard:05d}")
            durable.call_failpoint("append", path)
            with durable.name_file_in_errors(path), open(path, "wb" if written[shard] is None else "ab") as file:
                file.write(repeats.tobytes())
            written[shard] = path
    return written


def read_repeats(path: Path | None, rows: int) -> Iterator[int]:
    """Yield the occurrence number of each row's id: 0 for the first, 2 for the second.

    Repeats are stored in the order of their hashes, so the file is read once per `_WINDOW_ROWS` rows.

    Args:
        path: File of `write_repeats` for the shard, or None.
        rows: Rows of the shard.
    """
    for first in range(0, rows, _WINDOW_ROWS):
        times = np.zeros(min(_WINDOW_ROWS, rows - first), np.uint32)
        for block in _pad_blocks(path):
            inside = block[(block["row"] >= first) & (block["row"] < first + len(times))]
            times[inside["row"] - first] = inside["times"]
        yield from times.tolist()


def _pad_blocks(path: Path | None) -> Iterator[NDArray[np.void]]:
    if path is None:
        return
    with open(path, "rb", buffering=0) as file:
        while len(block := np.fromfile(file, _REPEAT_DTYPE, _BLOCK_IDS)):
            yield block


_Place = tuple[int, int, int]  # of an id in the merge: both halves of its hash, number of its run


@dataclass
class _Run:
    """Sorted run: ids that are read but not merged, and the unread part of its file.

    Attributes:
        number: Number among all runs, in the order of shards and rows.
        start, stop: Bounds of the unread part, in ids.
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
        """Read the next ids if all earlier ones are merged."""
        if len(self.ids) or not self.has_more:
            return
        with open(self.path, "rb", buffering=0) as file:
            file.seek(self.start * _ID_DTYPE.itemsize)
            self.ids = np.fromfile(file, _ID_DTYPE, min(max_ids, self.stop - self.start))
        if not len(self.ids):
            raise RetryableError(f"the file has fewer than {self.stop:,} ids", self.path, "run the command again")
        self.start += len(self.ids)

    @property
    def end(self) -> _Place:
        """Place of the last id that was read."""
        high, low, _ = self.ids[-1].tolist()
        return high, low, self.number

    def consume(self, bound: _Place | None) -> NDArray[np.void]:
        """Remove and return the ids up to the bound; all that were read if it is None."""
        count = len(self.ids)
        if bound is not None and self.end > bound:
            high, low, number = bound
            # Find the ids with the bound's high half, then the bound's place among their low halves. An id equal to the
            # bound comes before it if its run does.
            start = np.searchsorted(self.ids["high"], np.uint64(high), "left")
            stop = np.searchsorted(self.ids["high"], np.uint64(high), "right")
            lows = self.ids["low"][start:stop]
            count = int(start + np.searchsorted(lows, np.uint64(low), "right" if self.number < number else "left"))
        consumed, self.ids = self.ids[:count], self.ids[count:]
        return consumed


def _merged(paths: Sequence[Path]) -> Iterator[tuple[NDArray[np.void], NDArray[np.int32]]]:
    """Yield blocks of all ids in order, with their shards; equal ids by shard and row.

    A block ends where the first of the runs has to be read further.
    """
    runs = _runs(paths)
    max_ids = max(_BLOCK_IDS // max(len(runs), 1), _MIN_IDS)
    while runs:
        for run in runs:
            run.read(max_ids)
        bound = min((run.end for run in runs if run.has_more), default=None)
        parts = [run.consume(bound) for run in runs]
        ids = np.concatenate(parts)
        owners = np.repeat(np.array([run.shard for run in runs], np.int32), list(map(len, parts)))
        runs = [run for run in runs if len(run.ids) or run.has_more]
        order = np.lexsort((ids["row"], owners, ids["low"], ids["high"]))
        yield ids[order], owners[order]


def _runs(paths: Sequence[Path]) -> list[_Run]:
    runs: list[_Run] = []
    for shard, path in enumerate(paths):
        ids = path.stat().st_size // _ID_DTYPE.itemsize
        runs += [
            _Run(number, shard, path, start, min(start + RUN_IDS, ids))
            for number, start in enumerate(range(0, ids, RUN_IDS), len(runs))
        ]
    return runs
