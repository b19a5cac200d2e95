"""Sorted runs (files) of a dump's rows, read in buckets of question ids.

A block is a range of IDS_PER_BLOCK question ids. A run is a file with a frame for each block that has rows, in order.
A frame is a MessagePack list of (question id, row number, post or fault), compressed with zstd, with a checksum. The
index of a run is a file with a single frame: a list of (block number, number of rows, size of these rows in the dump,
size of the block's frame). A bucket is a range of blocks. Its bounds do not depend on the division into runs.
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

from pipeline_assets.corpus.readers.faults import Fault
from pipeline_assets.corpus.readers.stackexchange.archive import POSTS_FILE, is_archive, posts_bytes
from pipeline_assets.corpus.readers.stackexchange.posts import ANSWER, Post, PostRow, read_rows
from pipeline_assets.spine.durable import DurableFile
from pipeline_assets.spine.errors import RetryableError
from pipeline_assets.spine.ledger import dropped_key
from pipeline_assets.spine.stage import Window, group_by_size
from pipeline_assets.spine.staging import WORK_FOLDER, OutputFile, Receipt, StagingView

RANGE_BYTES = 1 << 30
RUN_BYTES = 1 << 27
IDS_PER_BLOCK = 4096
_FIRST_THREADLESS_KEY = -(1 << 60)  # first sort key of rows without a question
_LAST_POST_TYPE = 99
_DROPPED_POST_TYPES = {
    3: "orphaned_tag_wiki",
    4: "tag_wiki_excerpt",
    5: "tag_wiki",
    6: "moderator_nomination",
    7: "wiki_placeholder",
    8: "privilege_wiki",
}
_OVERHEAD_BYTES = 64  # memory per row in addition to its encoded bytes

SpilledRow = tuple[int, int, Post | Fault]
_row_decoder = msgspec.msgpack.Decoder(list[SpilledRow])
_index_decoder = msgspec.msgpack.Decoder(list[tuple[int, int, int, int]])


@dataclass(frozen=True)
class SpillShard:
    """Shard of pass 1: a part of a Posts.xml, cut between rows, or a whole archive."""

    name: str
    file: Path
    start: int
    stop: int | None
    rows: int = 0  # unknown


def plan_spill(file: Path, range_bytes: int = RANGE_BYTES) -> list[SpillShard]:
    """Divide a dump into parts of about `range_bytes`; an archive is one part."""
    cuts = [0]
    if not is_archive(file) and file.stat().st_size > range_bytes:
        with open(file, "rb") as source, mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ) as posts:
            targets = range(range_bytes, len(posts), range_bytes)
            starts = {posts.find(b"<row", target) for target in targets}  # values contain no `<`
            cuts += sorted(starts - {-1})
    pairs = itertools.pairwise([*cuts, None])
    # An earlier format used the name `posts-…`; an interrupted build may still have such runs.
    return [SpillShard(f"part-{number:05d}", file, start or 0, stop) for number, (start, stop) in enumerate(pairs)]


def spill_rows(shard: SpillShard, window: Window, folder: StagingView, run_bytes: int = RUN_BYTES) -> Receipt:
    """Write the sorted runs of a shard; the receipt lists each run before its index.

    Memory is `run_bytes` plus the longest row. Counts in the receipt: `rows`, all rows of the shard; `spilled`, rows
    that are written for pass 2; `dropped/<post type>`, the other rows, which are neither questions nor answers.
    """
    where = f"{shard.file}/{POSTS_FILE}" if is_archive(shard.file) else str(shard.file)
    counts, files = Counter[str](rows=0, spilled=0), list[OutputFile]()
    with contextlib.closing(posts_bytes(shard.file, shard.start, shard.stop)) as blocks:
        rows = _encode_rows(read_rows(blocks, where, shard.start, shard.stop is None), counts)
        names = (f"{WORK_FOLDER}/spilled/{shard.name}-{number:05d}" for number in itertools.count())
        runs = group_by_size(rows, lambda row: len(row[2]) + _OVERHEAD_BYTES, run_bytes)
        # `map` keeps no reference to a run: a loop variable would keep one in memory while the next one is filled.
        for run_files in map(functools.partial(_write_run, folder), names, runs):
            files += run_files
    return Receipt(files, dict(sorted(counts.items())))


def _encode_rows(rows: Iterable[PostRow], counts: Counter[str]) -> Iterator[tuple[int, int, bytes]]:
    """Yield (block number, size in dump, encoding) per spilled row; count all rows."""
    for number, row in enumerate(rows):
        kind = row.positive_integer("PostTypeId")
        counts["rows"] += 1
        if ANSWER < kind <= _LAST_POST_TYPE:
            counts[dropped_key(_DROPPED_POST_TYPES.get(kind, f"post_type_{kind}"))] += 1
            continue
        counts["spilled"] += 1
        thread, post = row.to_post()
        key = thread or _FIRST_THREADLESS_KEY + number
        yield key // IDS_PER_BLOCK, row.size + 1, msgspec.msgpack.encode((key, number, post))


def _write_run(folder: StagingView, name: str, rows: list[tuple[int, int, bytes]]) -> list[OutputFile]:
    index: list[tuple[int, int, int, int]] = []
    with DurableFile(folder.path(name)) as file:
        for block, block_rows in itertools.groupby(sorted(rows, key=itemgetter(0)), itemgetter(0)):
            _, sizes, spilled = zip(*block_rows, strict=True)
            index.append((block, len(sizes), sum(sizes), file.write(_encode_frame(list(map(msgspec.Raw, spilled))))))
    return [OutputFile.uncompressed(name, len(rows), file), folder.write(f"{name}.index", _encode_frame(index))]


@dataclass(frozen=True)
class Bucket:
    """Shard of pass 2: the rows in a range of blocks, from all runs."""

    name: str
    runs: tuple[tuple[Path, int], ...]  # each with the number, in the dump, of the first row of the run's part
    first_block: int
    last_block: int  # inclusive
    rows: int


def plan_buckets(folder: StagingView, receipts: Sequence[Receipt], bucket_bytes: int) -> list[Bucket]:
    """Divide all spilled rows into buckets of about `bucket_bytes` of the dump."""
    first_rows = itertools.accumulate((receipt.counts["rows"] for receipt in receipts), initial=0)
    parts = zip(receipts, first_rows, strict=False)
    runs = tuple((folder.path(run.path), first) for receipt, first in parts for run in receipt.files[::2])
    sizes, rows = Counter[int](), Counter[int]()
    for run, _ in runs:
        for block, block_rows, row_bytes, _ in _read_index(run):
            sizes[block] += row_bytes
            rows[block] += block_rows
    groups = group_by_size(sorted(sizes), sizes.__getitem__, bucket_bytes)
    return [
        Bucket(f"threads-{number:05d}", runs, blocks[0], blocks[-1], sum(rows[block] for block in blocks))
        for number, blocks in enumerate(groups)
    ]


def read_bucket(bucket: Bucket) -> list[SpilledRow]:
    """Read a bucket's rows, sorted by question id and row; RetryableError if damaged."""
    bucket_rows: list[SpilledRow] = []
    for run, first_row in bucket.runs:
        offset = 0
        with open(run, "rb", buffering=0) as file:
            for block, _, _, size in _read_index(run):
                if bucket.first_block <= block <= bucket.last_block:
                    file.seek(offset)
                    rows = _row_decoder.decode(_decode_frame(file.read(size), run))
                    bucket_rows += [(key, number + first_row, post) for key, number, post in rows]
                offset += size
    return sorted(bucket_rows, key=itemgetter(0, 1))


def _read_index(run: Path) -> list[tuple[int, int, int, int]]:
    return _index_decoder.decode(_decode_frame(run.with_name(f"{run.name}.index").read_bytes(), run))


def _encode_frame(content: object) -> bytes:
    return zstandard.ZstdCompressor(level=1, write_checksum=True).compress(msgspec.msgpack.encode(content))


def _decode_frame(frame: bytes, run: Path) -> bytes:
    try:
        content = zstandard.ZstdDecompressor().decompress(frame, allow_extra_data=False)
    except zstandard.ZstdError:
        content = b""
    if not content:  # also if a damaged header declares empty content, because the rest is not checked then
        fix = "remove the folder of this file and run the command again"
        raise RetryableError("the spilled rows are damaged", run, fix)
    return content
