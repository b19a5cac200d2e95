"""Pass 1: rows of a Posts.xml, or of a site's .7z, sorted by question into runs. Read once, from front to back.

A run is a file of frames, one for each block of BLOCK_IDS question ids that it has rows of, in order of ids. A frame is
zstd of a list in MessagePack: of each row its question's id, its number, and its post or fault. The run ends with an
index, zstd of int64 (frames, 4): block, rows, their bytes in the dump, bytes of the frame; and its size, int64. Every
zstd frame has a checksum. Pass 2 reads buckets: ranges of questions out of every run. They are planned from the sizes
of blocks, so they are the same whatever the runs were.
"""

import itertools
import mmap
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec
import numpy as np
import zstandard
from numpy.typing import NDArray

from pipeline_assets.corpus.readers.columns import Fault
from pipeline_assets.corpus.readers.stackexchange.archive import POSTS, is_archive, pour, pour_archive
from pipeline_assets.corpus.readers.stackexchange.posts import ANSWER, Post, PostsXml, Row
from pipeline_assets.corpus.spine.durable import DurableFile
from pipeline_assets.corpus.spine.errors import RetryableError
from pipeline_assets.corpus.spine.ledger import dropped_key
from pipeline_assets.corpus.spine.staging import WORK, BuildFolder, OutputFile, Receipt
from pipeline_assets.corpus.spine.worker import Window, grouped_by_size

SPILLED = f"{WORK}/spilled"
RANGE_BYTES = 1 << 30
RUN_BYTES = 1 << 27
BLOCK_IDS = 4096
_NOT_A_THREAD = -(1 << 60)  # rows without a question are sorted from here on
_LAST_POST_TYPE = 99
_POST_TYPES = {
    3: "orphaned_tag_wiki",
    4: "tag_wiki_excerpt",
    5: "tag_wiki",
    6: "moderator_nomination",
    7: "wiki_placeholder",
    8: "privilege_wiki",
}
_NO_THREAD = Fault("missing_attribute", "no number in Id, PostTypeId or ParentId")
_OVERHEAD_BYTES = 64  # of a row in memory, beyond its own
_ZSTD_LEVEL = 1
_SIZE_BYTES = 8
_START_AGAIN = "remove the folder that it lies in and run the command again"

SpilledRow = tuple[int, int, msgspec.Raw]
_encoder = msgspec.msgpack.Encoder()
_frame_decoder = msgspec.msgpack.Decoder(list[SpilledRow])
_row_decoder: msgspec.msgpack.Decoder[Post | Fault] = msgspec.msgpack.Decoder(Post | Fault)


@dataclass(frozen=True)
class SpillShard:
    """A part of a file, from row to row; of an archive the whole. `rows` aren't known before they are read."""

    name: str
    file: Path
    start: int
    stop: int | None
    rows: int = 0


def plan_spill(file: Path, range_bytes: int = RANGE_BYTES) -> list[SpillShard]:
    """Parts of about `range_bytes`: a build that is stopped goes on with the part it was in. An archive is one part."""
    cuts = [0]
    if not is_archive(file) and file.stat().st_size > range_bytes:
        with open(file, "rb") as source, mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ) as posts:
            for target in range(range_bytes, len(posts), range_bytes):
                cut = posts.find(b"<row", max(target, cuts[-1] + 1))  # a `<` stands in no value
                if cut < 0:
                    break
                cuts.append(cut)
    pairs = zip(cuts, [*cuts[1:], None], strict=True)
    return [SpillShard(f"posts-{number:05d}", file, start, stop) for number, (start, stop) in enumerate(pairs)]


def spill_rows(shard: SpillShard, window: Window, folder: BuildFolder, run_bytes: int = RUN_BYTES) -> Receipt:
    """The runs of a part of a file, a stage for the engine. Memory: `run_bytes`, and the longest row.

    Args:
        window: has no part in this: `rows` aren't known.
    Returns:
        Files: the runs. Counts: `rows` read; `spilled`, which pass 2 will account for one by one;
        `dropped/<post type>`, posts that are neither question nor answer.
    Raises:
        InputError: the file can't be read to its end.
    """
    is_packed = is_archive(shard.file)
    posts = PostsXml(f"{shard.file}/{POSTS}" if is_packed else str(shard.file), shard.start, shard.stop is None)
    runs = Runs(folder, f"{SPILLED}/{shard.name}", run_bytes)

    def take(block: bytes) -> None:
        runs.add(posts.feed(block))

    if is_packed:
        pour_archive(shard.file, take)
    else:
        pour(shard.file, take, shard.start, shard.stop)
    runs.add(posts.close())
    return runs.receipt()


class Runs:
    """Rows on their way into runs, of which one at a time is held in memory."""

    def __init__(self, folder: BuildFolder, stem: str, run_bytes: int) -> None:
        self._folder, self._stem, self._run_bytes = folder, stem, run_bytes
        self._rows = 0
        self._dropped: Counter[int] = Counter()
        self._files: list[OutputFile] = []
        self._clear()

    def _clear(self) -> None:
        self._bytes = 0
        self._blocks: defaultdict[int, list[bytes]] = defaultdict(list)
        self._block_bytes: Counter[int] = Counter()

    def add(self, rows: Iterable[Row]) -> None:
        """The next rows of the file."""
        for row in rows:
            number = self._rows
            self._rows += 1
            post_type = row.number("PostTypeId")
            if ANSWER < post_type <= _LAST_POST_TYPE:
                self._dropped[post_type] += 1
                continue
            thread = 0 if row.fault else row.thread()
            key = thread or _NOT_A_THREAD + number
            spilled = _encoder.encode((key, number, row.post() if thread else row.fault or _NO_THREAD))
            self._blocks[key // BLOCK_IDS].append(spilled)
            self._block_bytes[key // BLOCK_IDS] += row.size + 1
            self._bytes += len(spilled) + _OVERHEAD_BYTES
            if self._bytes >= self._run_bytes:
                self._write()

    def _write(self) -> None:
        name = f"{self._stem}-{len(self._files):05d}"
        compressor = zstandard.ZstdCompressor(level=_ZSTD_LEVEL, write_checksum=True)
        index: list[tuple[int, int, int, int]] = []
        with DurableFile(self._folder.path(name)) as file:
            for block, rows in sorted(self._blocks.items()):
                size = file.write(compressor.compress(_encoder.encode([msgspec.Raw(row) for row in rows])))
                index.append((block, len(rows), self._block_bytes[block], size))
            tail = compressor.compress(np.array(index, "<i8").tobytes())
            file.write(tail + len(tail).to_bytes(_SIZE_BYTES, "little"))
        self._files.append(OutputFile.plain(name, sum(map(len, self._blocks.values())), file))
        self._clear()

    def receipt(self) -> Receipt:
        """All is written."""
        if self._blocks:
            self._write()
        by_type = {dropped_key(_POST_TYPES.get(kind, f"post_type_{kind}")): n for kind, n in self._dropped.items()}
        spilled = self._rows - self._dropped.total()
        return Receipt(self._files, dict(sorted({"rows": self._rows, "spilled": spilled, **by_type}.items())))


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


def plan_buckets(folder: BuildFolder, receipts: Sequence[Receipt], bucket_bytes: int) -> list[Bucket]:
    """Ranges of questions of about `bucket_bytes` of the dump each, in order of ids.

    Args:
        receipts: of every shard of pass 1 of one file, in order.
    """
    first_rows = itertools.accumulate((receipt.counts["rows"] for receipt in receipts), initial=0)
    files = ((file, first) for receipt, first in zip(receipts, first_rows, strict=False) for file in receipt.files)
    runs = tuple(RunFile(folder.path(file.path), first) for file, first in files)  # one for all buckets
    sizes: Counter[int] = Counter()
    rows: Counter[int] = Counter()
    for run in runs:
        with open(run.path, "rb", buffering=0) as file:
            for block, block_rows, row_bytes, _ in _read_index(file, run.path).tolist():
                sizes[block] += row_bytes
                rows[block] += block_rows
    groups = grouped_by_size(sorted(sizes), sizes.__getitem__, bucket_bytes)
    return [
        Bucket(f"threads-{number:05d}", runs, blocks[0], blocks[-1], sum(rows[block] for block in blocks))
        for number, blocks in enumerate(groups)
    ]


def read_bucket(bucket: Bucket) -> list[SpilledRow]:
    """The rows of a bucket by question, then number.

    Raises:
        InputError: a run is damaged.
    """
    found: list[SpilledRow] = []
    for run in bucket.runs:
        with open(run.path, "rb", buffering=0) as file:
            index = _read_index(file, run.path)
            first, stop = np.searchsorted(index[:, 0], [bucket.first_block, bucket.last_block + 1])
            file.seek(int(index[:first, 3].sum()))
            for size in index[first:stop, 3].tolist():
                rows = _frame_decoder.decode(_decompressed(file.read(size), run.path))
                found += [(key, number + run.first_row, post) for key, number, post in rows]
    return sorted(found)  # numbers differ: no two rows are compared by their posts


def read_post(row: SpilledRow) -> Post | Fault:
    """What a row says; or what is wrong with it."""
    post = _row_decoder.decode(row[2])
    if isinstance(post, Post):
        post.row = row[1]
    return post


def _read_index(file: BinaryIO, path: Path) -> NDArray[np.int64]:
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
