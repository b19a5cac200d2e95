"""Spilled rows: sorted runs written in pass 1, and buckets, ranges of questions that pass 2 reads from all of them.

A run is a file of frames, one for each block of BLOCK_IDS question ids that it has rows of, in order of ids. A frame is
zstd of int64 (rows n, n keys, n row numbers) and n lines; the run ends with an index, zstd of int64 (frames, 4): block,
rows, bytes of lines, bytes of the frame; and its size, int64. All zstd has a checksum. Buckets are planned from the
sizes of blocks, so they are the same whatever the runs were.
"""

import mmap
import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import zstandard

from pipeline_assets.corpus.readers.stackexchange.arrays import Bytes, Integers
from pipeline_assets.corpus.readers.stackexchange.lines import copy_lines
from pipeline_assets.corpus.spine.durable import DurableFile
from pipeline_assets.corpus.spine.errors import RetryableError
from pipeline_assets.corpus.spine.staging import BuildFolder, OutputFile, Receipt
from pipeline_assets.corpus.spine.worker import grouped_by_size

BLOCK_IDS = 4096
PADDING_BYTES = 16
_ZSTD_LEVEL = 1
_START_AGAIN = "remove the folder that it lies in and run the command again"
_NEWLINE, _SIZE_BYTES = 10, 8
_BLOCK, _ROWS, _LINE_BYTES, _FRAME_BYTES = range(4)


class Run:
    """Rows held in memory until they are written, sorted.

    Attributes:
        size: bytes of its lines, with their line breaks.
    """

    def __init__(self, run_bytes: int) -> None:
        """
        Args:
            run_bytes: about how large it will be.
        """
        # not NumPy's own memory, which is made of huge pages: those take up to five times as long to get
        self._data = np.frombuffer(mmap.mmap(-1, run_bytes + run_bytes // 8), np.uint8)
        self._clear()

    def _clear(self) -> None:
        self.size = 0
        self._keys: list[Integers] = []
        self._numbers: list[Integers] = []
        self._sizes: list[Integers] = []

    def add(self, keys: Integers, numbers: Integers, data: bytes, starts: Integers, stops: Integers) -> None:
        """
        Args:
            keys: the questions' ids, or below 0.
            numbers: the rows' numbers.
            data: in which their lines lie, without line breaks.
            starts, stops: where.
        """
        sizes = stops - starts + 1
        stop = self.size + int(sizes.sum())
        if stop > len(self._data):
            self._data = np.concatenate([self._data[: self.size], np.empty(stop - self.size, np.uint8)])
        copy_lines(np.frombuffer(data, np.uint8), starts, stops, self._data, self.size)
        self._keys.append(keys)
        self._numbers.append(numbers)
        self._sizes.append(sizes)
        self.size = stop

    def write(self, folder: BuildFolder, name: str) -> OutputFile:
        """Writes its rows, after which it has none."""
        keys, numbers, sizes = map(np.concatenate, (self._keys, self._numbers, self._sizes))
        data, stops = self._data.view(), np.cumsum(sizes) - 1
        data.flags.writeable = False
        order = np.argsort(keys // BLOCK_IDS, kind="stable")
        blocks, firsts = np.unique(keys[order] // BLOCK_IDS, return_index=True)
        compressor = zstandard.ZstdCompressor(level=_ZSTD_LEVEL, write_checksum=True)
        index: list[tuple[int, int, int, int]] = []
        with DurableFile(folder.path(name)) as file:
            for block, places in zip(blocks.tolist(), np.split(order, firsts[1:]), strict=True):
                head = np.concatenate([[len(places)], keys[places], numbers[places]]).astype("<i8").view(np.uint8)
                frame = np.empty(len(head) + sizes[places].sum(), np.uint8)
                frame[: len(head)] = head
                copy_lines(data, stops[places] - sizes[places] + 1, stops[places], frame, len(head))
                size = file.write(compressor.compress(frame[:-1].data))
                index.append((block, len(places), len(frame) - 1 - len(head), size))
            tail = compressor.compress(np.array(index, "<i8").tobytes())
            file.write(tail + len(tail).to_bytes(_SIZE_BYTES, "little"))
        self._clear()
        return OutputFile.plain(name, len(order), file)


@dataclass(frozen=True)
class RunFile:
    """A run on disk; `first_row` is added to the row numbers in it."""

    path: Path
    first_row: int


@dataclass(frozen=True)
class Bucket:
    """A shard of pass 2: the rows of a range of blocks, out of every run. `rows` are posts, read or rejected."""

    name: str
    runs: tuple[RunFile, ...]
    first_block: int
    last_block: int
    rows: int


@dataclass(frozen=True)
class BucketRows:
    """The rows of a bucket, as they were spilled.

    Attributes:
        data: their lines, each with its line break, and PADDING_BYTES that are zero; not writeable.
    """

    keys: Integers
    numbers: Integers
    data: Bytes


def plan_buckets(folder: BuildFolder, receipts: Sequence[Receipt], name: str, bucket_bytes: int) -> list[Bucket]:
    """Ranges of questions of about `bucket_bytes` of spilled lines each, in order of ids.

    Args:
        receipts: of every shard of pass 1 of one file, in order.
        name: of the buckets, to which their number is added.
    """
    found, first_row = [], 0
    for receipt in receipts:
        found += [RunFile(folder.path(file.path), first_row) for file in receipt.files]
        first_row += receipt.counts["rows"]
    runs = tuple(found)  # one for all buckets
    sizes: defaultdict[int, int] = defaultdict(int)
    rows: defaultdict[int, int] = defaultdict(int)
    for run in runs:
        for block, block_rows, line_bytes, _ in _read_index(run.path).tolist():
            sizes[block] += line_bytes
            rows[block] += block_rows
    groups = grouped_by_size(sorted(sizes), sizes.__getitem__, bucket_bytes)
    return [
        Bucket(f"{name}-{number:05d}", runs, blocks[0], blocks[-1], sum(rows[block] for block in blocks))
        for number, blocks in enumerate(groups)
    ]


def read_bucket(bucket: Bucket) -> BucketRows:
    """
    Raises:
        InputError: a run is damaged.
    """
    found = [(run, *_frames(run, bucket)) for run in bucket.runs]
    index = np.concatenate([np.empty((0, 4), np.int64), *(frames for _, frames, _ in found)])
    rows = int(index[:, _ROWS].sum())
    keys, numbers = np.empty(rows, np.int64), np.empty(rows, np.int64)
    data = np.zeros(int(index[:, _LINE_BYTES].sum()) + len(index) + PADDING_BYTES, np.uint8)
    row = at = 0
    for run, frames, start in found:
        for head, lines in _contents(run.path, frames, start):
            stop, end = row + head.shape[1], at + len(lines)
            keys[row:stop], numbers[row:stop] = head[0], head[1] + run.first_row
            data[at:end], data[end] = lines, _NEWLINE
            row, at = stop, end + 1
    data.flags.writeable = False
    return BucketRows(keys, numbers, data)


def _frames(run: RunFile, bucket: Bucket) -> tuple[Integers, int]:
    """What the index of a run says of the bucket's frames, shape (frames, 4); where the first of them begins."""
    index = _read_index(run.path)
    first, stop = np.searchsorted(index[:, _BLOCK], [bucket.first_block, bucket.last_block + 1])
    return index[first:stop].copy(), int(index[:first, _FRAME_BYTES].sum())


def _contents(path: Path, frames: Integers, start: int) -> Iterator[tuple[Integers, Bytes]]:
    """Of each frame keys and row numbers, shape (2, rows), and lines."""
    with open(path, "rb", buffering=0) as file:
        file.seek(start)
        for _, rows, line_bytes, frame_bytes in frames.tolist():
            frame = _decompressed(file.read(frame_bytes), path)
            head = np.frombuffer(frame, "<i8", 2 * rows, 8).reshape(2, rows)
            yield head, np.frombuffer(frame, np.uint8, line_bytes, 8 + 16 * rows)


def _read_index(path: Path) -> Integers:
    with open(path, "rb", buffering=0) as file:
        end = max(file.seek(0, os.SEEK_END) - _SIZE_BYTES, 0)
        file.seek(end)
        size = int.from_bytes(file.read(), "little")
        if not 0 < size <= end:
            raise RetryableError("the spilled rows are damaged (they have no index)", path, _START_AGAIN)
        file.seek(end - size)
        return np.frombuffer(_decompressed(file.read(size), path), "<i8").reshape(-1, 4)


def _decompressed(frame: bytes, path: Path) -> bytes:
    try:
        content = zstandard.ZstdDecompressor().decompress(frame, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise RetryableError(f"the spilled rows are damaged ({error})", path, _START_AGAIN) from None
    if not content:  # a header that says so is believed, and the rest is not looked at
        raise RetryableError("the spilled rows are damaged (a part has no content)", path, _START_AGAIN)
    return content
