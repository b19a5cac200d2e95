"""Rows of a Posts.xml, or of a site's .7z → runs sorted by question, and buckets: ranges of questions out of every run.

A run is a file of frames, one for each block of BLOCK_IDS question ids that it has rows of, in order of ids. A frame is
zstd with a checksum of a list in MessagePack: of each row its question's id, its number, and its post or fault. Beside
it lies its index, such a frame too: of each block its number, its rows, their bytes in the dump, the frame's bytes.
Buckets are planned from the sizes of blocks, so they are the same whatever the runs were.
"""

import itertools
import mmap
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path

import msgspec
import zstandard

from pipeline_assets.corpus.readers.columns import Fault
from pipeline_assets.corpus.readers.stackexchange.archive import POSTS, is_archive, pour
from pipeline_assets.corpus.readers.stackexchange.posts import ANSWER, Post, PostsXml, Row
from pipeline_assets.corpus.spine.durable import DurableFile
from pipeline_assets.corpus.spine.errors import RetryableError
from pipeline_assets.corpus.spine.ledger import dropped_key
from pipeline_assets.corpus.spine.stage import Window, grouped_by_size
from pipeline_assets.corpus.spine.staging import WORK, BuildFolder, OutputFile, Receipt

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
_OVERHEAD_BYTES = 64  # of a row in memory, beyond its own

SpilledRow = tuple[int, int, Post | Fault]
_rows = msgspec.msgpack.Decoder(list[SpilledRow])
_index = msgspec.msgpack.Decoder(list[tuple[int, int, int, int]])


@dataclass(frozen=True)
class SpillShard:
    """A part of a file, from row to row; of an archive the whole. `rows` aren't known before, so no window has a part."""

    name: str
    file: Path
    start: int
    stop: int | None
    rows: int = 0


def plan_spill(file: Path, range_bytes: int = RANGE_BYTES) -> list[SpillShard]:
    """Cut a file into parts of about `range_bytes`, which a build that is stopped need not read again; no archive."""
    cuts = [0]
    if not is_archive(file) and file.stat().st_size > range_bytes:
        with open(file, "rb") as source, mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ) as posts:
            targets = range(range_bytes, len(posts), range_bytes)
            found = {posts.find(b"<row", target) for target in targets}  # a `<` stands in no value
            cuts += sorted(found - {-1})
    pairs = itertools.pairwise([*cuts, None])
    # Runs of parts named `posts-…`, which a stopped build may hold, are of an earlier form.
    return [SpillShard(f"part-{number:05d}", file, start or 0, stop) for number, (start, stop) in enumerate(pairs)]


def spill_rows(shard: SpillShard, window: Window, folder: BuildFolder, run_bytes: int = RUN_BYTES) -> Receipt:
    """Write the runs of a part of a file, a stage for the engine. Memory: `run_bytes`, and the longest row.

    Returns:
        Files: the runs, each before its index. Counts: `rows` read; `spilled`, which pass 2 accounts for one by one;
        `dropped/<post type>`, posts that are neither question nor answer.
    Raises:
        InputError: the file can't be read to its end.
    """
    where = f"{shard.file}/{POSTS}" if is_archive(shard.file) else str(shard.file)
    posts = PostsXml(where, shard.start, shard.stop is None)
    runs = Runs(folder, f"{WORK}/spilled/{shard.name}", run_bytes)
    pour(shard.file, lambda block: runs.add(posts.feed(block)), shard.start, shard.stop)
    runs.add(posts.close())
    return runs.receipt()


class Runs:
    """Rows on their way into runs, of which one at a time is held in memory."""

    def __init__(self, folder: BuildFolder, stem: str, run_bytes: int) -> None:
        self._folder, self._stem, self._run_bytes = folder, stem, run_bytes
        self._counts: Counter[str] = Counter(rows=0, spilled=0)
        self._files: list[OutputFile] = []
        self._bytes = 0
        self._blocks: defaultdict[int, list[tuple[int, msgspec.Raw]]] = defaultdict(list)

    def add(self, rows: Iterable[Row]) -> None:
        """Take the next rows of the file."""
        for row in rows:
            number, kind = self._counts["rows"], row.number("PostTypeId")
            self._counts["rows"] += 1
            if ANSWER < kind <= _LAST_POST_TYPE:
                self._counts[dropped_key(_POST_TYPES.get(kind, f"post_type_{kind}"))] += 1
                continue
            self._counts["spilled"] += 1
            thread, said = row.said()
            key = thread or _NOT_A_THREAD + number
            spilled = msgspec.msgpack.encode((key, number, said))
            self._blocks[key // BLOCK_IDS].append((row.size + 1, msgspec.Raw(spilled)))
            self._bytes += len(spilled) + _OVERHEAD_BYTES
            if self._bytes >= self._run_bytes:
                self._write()

    def _write(self) -> None:
        name = f"{self._stem}-{len(self._files) // 2:05d}"
        index: list[tuple[int, int, int, int]] = []
        with DurableFile(self._folder.path(name)) as file:
            for block, sized_rows in sorted(self._blocks.items()):
                sizes, rows = zip(*sized_rows, strict=True)
                index.append((block, len(rows), sum(sizes), file.write(_packed(rows))))
        self._files.append(OutputFile.plain(name, sum(rows for _, rows, _, _ in index), file))
        self._files.append(self._folder.write(f"{name}.index", _packed(index)))
        self._bytes = 0
        self._blocks.clear()

    def receipt(self) -> Receipt:
        """Write the last run, and return what was written and counted."""
        if self._blocks:
            self._write()
        return Receipt(self._files, dict(sorted(self._counts.items())))


@dataclass(frozen=True)
class Bucket:
    """A shard of pass 2: the rows of a range of blocks, out of every run. `rows` are posts, read or rejected.

    Attributes:
        runs: each with the number of its part's first row, which is added to the row numbers in it.
    """

    name: str
    runs: tuple[tuple[Path, int], ...]
    first_block: int
    last_block: int
    rows: int


def plan_buckets(folder: BuildFolder, receipts: Sequence[Receipt], bucket_bytes: int) -> list[Bucket]:
    """Plan ranges of questions of about `bucket_bytes` of the dump each, in order of ids.

    Args:
        receipts: of every shard of pass 1 of one file, in order.
    """
    first_rows = itertools.accumulate((receipt.counts["rows"] for receipt in receipts), initial=0)
    parts = zip(receipts, first_rows, strict=False)
    runs = tuple((folder.path(run.path), first) for receipt, first in parts for run in receipt.files[::2])
    sizes, rows = Counter[int](), Counter[int]()
    for run, _ in runs:
        for block, block_rows, row_bytes, _ in _read_index(run):
            sizes[block] += row_bytes
            rows[block] += block_rows
    groups = grouped_by_size(sorted(sizes), sizes.__getitem__, bucket_bytes)
    return [
        Bucket(f"threads-{number:05d}", runs, blocks[0], blocks[-1], sum(rows[block] for block in blocks))
        for number, blocks in enumerate(groups)
    ]


def read_bucket(bucket: Bucket) -> list[SpilledRow]:
    """Return the rows of a bucket by question, then number.

    Raises:
        InputError: a run is damaged.
    """
    found: list[SpilledRow] = []
    for run, first_row in bucket.runs:
        at = 0
        with open(run, "rb", buffering=0) as file:
            for block, _, _, size in _read_index(run):
                if bucket.first_block <= block <= bucket.last_block:
                    file.seek(at)
                    rows = _rows.decode(_unpacked(file.read(size), run))
                    found += [(key, number + first_row, said) for key, number, said in rows]
                at += size
    return sorted(found, key=itemgetter(0, 1))


def _read_index(run: Path) -> list[tuple[int, int, int, int]]:
    return _index.decode(_unpacked(run.with_name(f"{run.name}.index").read_bytes(), run))


def _packed(content: object) -> bytes:
    return zstandard.ZstdCompressor(level=1, write_checksum=True).compress(msgspec.msgpack.encode(content))


def _unpacked(frame: bytes, run: Path) -> bytes:
    try:
        content = zstandard.ZstdDecompressor().decompress(frame, allow_extra_data=False)
    except zstandard.ZstdError:
        content = b""
    if not content:  # a header that says so is believed, and the rest is not looked at
        fix = "remove the folder that it lies in and run the command again"
        raise RetryableError("the spilled rows are damaged", run, fix)
    return content
