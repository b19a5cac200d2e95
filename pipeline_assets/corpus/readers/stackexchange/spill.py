"""Rows of a Posts.xml, or of a site's .7z → runs sorted by question, and buckets: ranges of questions out of every run.

A run is a file of frames, one for each block of BLOCK_IDS question ids that it has rows of, in order of ids. A frame is
zstd with a checksum of a list in MessagePack: of each row its question's id, its number, and its post or fault. Beside
it lies its index, such a frame too: of each block its number, its rows, their bytes in the dump, the frame's bytes.
Buckets are planned from the sizes of blocks, so they are the same whatever the runs were.
"""

import contextlib
import functools
import itertools
import mmap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path

import msgspec
import zstandard

from pipeline_assets.corpus.readers.columns import Fault
from pipeline_assets.corpus.readers.stackexchange.archive import POSTS, is_archive, posts_bytes
from pipeline_assets.corpus.readers.stackexchange.posts import ANSWER, Post, Row, read_rows
from pipeline_assets.spine.durable import DurableFile
from pipeline_assets.spine.errors import RetryableError
from pipeline_assets.spine.ledger import dropped_key
from pipeline_assets.spine.stage import Window, grouped_by_size
from pipeline_assets.spine.staging import WORK, OutputFile, Receipt, StagingView

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
    """A part of a file from row to row, or a whole archive; `rows` aren't known."""

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


def spill_rows(shard: SpillShard, window: Window, folder: StagingView, run_bytes: int = RUN_BYTES) -> Receipt:
    """Write the runs of a part of a file, a stage for the engine. Memory: `run_bytes`, and the longest row.

    Returns:
        Files: the runs, each before its index. Counts: `rows` read; `spilled`, which pass 2 accounts for one by one;
        `dropped/<post type>`, posts that are neither question nor answer.
    Raises:
        InputError: the file can't be read to its end.
    """
    where = f"{shard.file}/{POSTS}" if is_archive(shard.file) else str(shard.file)
    counts, files = Counter[str](rows=0, spilled=0), list[OutputFile]()
    with contextlib.closing(posts_bytes(shard.file, shard.start, shard.stop)) as blocks:
        rows = _spilled(read_rows(blocks, where, shard.start, shard.stop is None), counts)
        names = (f"{WORK}/spilled/{shard.name}-{number:05d}" for number in itertools.count())
        runs = grouped_by_size(rows, lambda row: len(row[2]) + _OVERHEAD_BYTES, run_bytes)
        # `map` keeps no run: a variable here would hold the written one while the next one grows.
        for written in map(functools.partial(_write_run, folder), names, runs):
            files += written
    return Receipt(files, dict(sorted(counts.items())))


def _spilled(rows: Iterable[Row], counts: Counter[str]) -> Iterator[tuple[int, int, bytes]]:
    """Yield the block of each question or answer, its bytes in the dump, and what is spilled."""
    for number, row in enumerate(rows):
        kind = row.number("PostTypeId")
        counts["rows"] += 1
        if ANSWER < kind <= _LAST_POST_TYPE:
            counts[dropped_key(_POST_TYPES.get(kind, f"post_type_{kind}"))] += 1
            continue
        counts["spilled"] += 1
        thread, said = row.to_post()
        key = thread or _NOT_A_THREAD + number
        yield key // BLOCK_IDS, row.size + 1, msgspec.msgpack.encode((key, number, said))


def _write_run(folder: StagingView, name: str, rows: list[tuple[int, int, bytes]]) -> list[OutputFile]:
    index: list[tuple[int, int, int, int]] = []
    with DurableFile(folder.path(name)) as file:
        for block, own in itertools.groupby(sorted(rows, key=itemgetter(0)), itemgetter(0)):
            _, sizes, spilled = zip(*own, strict=True)
            index.append((block, len(sizes), sum(sizes), file.write(_packed(list(map(msgspec.Raw, spilled))))))
    return [OutputFile.plain(name, len(rows), file), folder.write(f"{name}.index", _packed(index))]


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


def plan_buckets(folder: StagingView, receipts: Sequence[Receipt], bucket_bytes: int) -> list[Bucket]:
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
