"""Spilled rows: sorted runs written in pass 1, and buckets, ranges of questions that pass 2 reads from all of them.

A run is a file of frames, one for each block of BLOCK_IDS question ids that it has rows of, in order of ids. A frame is
zstd of int64 (rows n, n keys, n row numbers) and n lines; the run ends with an index, int64 (n, 4): block, rows, bytes
of lines, bytes of the frame; and n. Buckets are planned from the sizes of blocks, so they are the same whatever the
runs were.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import zstandard
from numpy.typing import NDArray

from pipeline_assets.corpus.readers.stackexchange.markup_bytes import PADDING_BYTES
from pipeline_assets.corpus.spine.building import BuildFolder, OutputFile, Receipt
from pipeline_assets.corpus.spine.durable import DurableFile
from pipeline_assets.corpus.spine.errors import Obstacle
from pipeline_assets.corpus.spine.shards import grouped_by_size

BLOCK_IDS = 4096
_ZSTD_LEVEL = 1
_START_AGAIN = "remove the folder that it lies in and run the command again"
_BLOCK, _ROWS, _LINE_BYTES, _FRAME_BYTES = range(4)


class Run:
    """Rows held in memory until they are written, sorted.

    Attributes:
        size: bytes of its lines.
    """

    def __init__(self) -> None:
        self.size = 0
        self._keys: list[NDArray[np.int64]] = []
        self._numbers: list[NDArray[np.int64]] = []
        self._lines: list[bytes] = []

    def add(self, keys: NDArray[np.int64], numbers: NDArray[np.int64], lines: Sequence[bytes]) -> None:
        """
        Args:
            keys: the questions' ids, or below 0.
            numbers: the rows' numbers.
            lines: without line breaks.
        """
        self._keys.append(keys)
        self._numbers.append(numbers)
        self._lines += lines
        self.size += sum(map(len, lines))

    def write(self, folder: BuildFolder, name: str) -> OutputFile:
        keys, numbers = np.concatenate(self._keys), np.concatenate(self._numbers)
        order = np.argsort(keys // BLOCK_IDS, kind="stable")
        blocks, starts = np.unique(keys[order] // BLOCK_IDS, return_index=True)
        compressor = zstandard.ZstdCompressor(level=_ZSTD_LEVEL, write_checksum=True)
        index: list[tuple[int, int, int, int]] = []
        with DurableFile(folder.path(name), is_hashed=False) as file:
            for block, start, stop in zip(blocks.tolist(), starts, [*starts[1:], len(order)], strict=True):
                places = order[start:stop]
                lines = b"\n".join([self._lines[place] for place in places.tolist()])
                head = np.concatenate([[len(places)], keys[places], numbers[places]]).astype("<i8")
                size = file.write(compressor.compress(head.tobytes() + lines))
                index.append((block, len(places), len(lines), size))
            file.write(np.array(index, "<i8").tobytes() + np.array([len(index)], "<i8").tobytes())
        return OutputFile(name, len(order), file.bytes_written, sha256="", content_sha256="")


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
        data: their lines, each with its line break, and PADDING_BYTES that are zero.
    """

    keys: NDArray[np.int64]
    numbers: NDArray[np.int64]
    data: bytes


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
    keys: list[NDArray[np.int64]] = [np.empty(0, np.int64)]
    numbers: list[NDArray[np.int64]] = [np.empty(0, np.int64)]
    lines: list[bytes | memoryview] = []
    for run in bucket.runs:
        for frame in _frames(run.path, bucket.first_block, bucket.last_block):
            count = int(np.frombuffer(frame, "<i8", 1)[0])
            head = np.frombuffer(frame, "<i8", 2 * count, 8).copy()
            keys.append(head[:count])
            numbers.append(head[count:] + run.first_row)
            lines += [memoryview(frame)[8 + 16 * count :], b"\n"]
    lines.append(bytes(PADDING_BYTES))
    return BucketRows(np.concatenate(keys), np.concatenate(numbers), b"".join(lines))


def _frames(path: Path, first_block: int, last_block: int) -> Iterator[bytes]:
    index = _read_index(path)
    first, stop = np.searchsorted(index[:, _BLOCK], [first_block, last_block + 1])
    sizes = index[:, _FRAME_BYTES]
    start = int(sizes[:first].sum())
    decompressor = zstandard.ZstdDecompressor()
    with open(path, "rb", buffering=0) as file:
        file.seek(start)
        for size in sizes[first:stop].tolist():
            try:
                yield decompressor.decompress(file.read(size))
            except zstandard.ZstdError as error:
                raise Obstacle(f"the spilled rows are damaged ({error})", path, _START_AGAIN) from None


def _read_index(path: Path) -> NDArray[np.int64]:
    size = path.stat().st_size
    with open(path, "rb", buffering=0) as file:
        file.seek(size - 8)
        count = int.from_bytes(file.read(8), "little")
        file.seek(max(size - 8 - 32 * count, 0))
        data = file.read(32 * count)
    if len(data) != 32 * count:
        raise Obstacle("the index of the spilled rows is damaged", path, _START_AGAIN)
    return np.frombuffer(data, "<i8").reshape(count, 4)
