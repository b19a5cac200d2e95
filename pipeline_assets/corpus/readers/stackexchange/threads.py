"""Rows of a Posts.xml, or of a site's .7z → one Document a question thread, and what becomes of every other post.

Pass 1 reads the dump once, from front to back, and sorts its rows by question into runs. A run is a file of frames, one
for each block of BLOCK_IDS question ids that it has rows of, in order of ids. A frame is zstd of a list in MessagePack:
of each row its question's id, its number, and its post or fault. The run ends with an index, zstd of int64 (frames, 4):
block, rows, their bytes in the dump, bytes of the frame; and its size, int64. Every zstd frame has a checksum. Pass 2
reads buckets: ranges of questions out of every run. They are planned from the sizes of blocks, so they are the same
whatever the runs were.

A Document's text is the title, the question, and each answer under a line `Answer:`, a blank line between each:

    Why is the sky blue?

    My teacher says it reflects the sea.

    Answer:

    Rayleigh scattering.

Names of users are left out. The ids of their accounts, and the address of the thread, by which the licence asks to
name them, are in `meta`.

Contributions before 2011-04-08 (UTC) are under CC BY-SA 2.5, from then to before 2018-05-02 under 3.0, from then on
under 4.0 (stackoverflow.com/help/licensing). Newer dumps say it for each post in `ContentLicense`. A thread is tagged
with the newest licence of its posts: each version lets an adaptation, as a joined text is, be under a later one (2.5
§4b, 3.0 §4b). Each post's own stays in `meta`. One post of an unknown licence makes it `unknown`.
"""

import itertools
import mmap
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Annotated, BinaryIO

import msgspec
import numpy as np
import pydantic
import zstandard
from numpy.typing import NDArray

from pipeline_assets.corpus.document import Document, Meta, moment_of
from pipeline_assets.corpus.licences import UNKNOWN, Licensed
from pipeline_assets.corpus.readers.columns import Fault
from pipeline_assets.corpus.readers.stackexchange.archive import POSTS, is_archive, pour, pour_archive
from pipeline_assets.corpus.readers.stackexchange.body_text import body_text
from pipeline_assets.corpus.readers.stackexchange.posts import ANSWER, QUESTION, Post, PostsXml, Row
from pipeline_assets.corpus.spine.durable import DurableFile
from pipeline_assets.corpus.spine.errors import RetryableError
from pipeline_assets.corpus.spine.ledger import Reject, dropped_key
from pipeline_assets.corpus.spine.recipe import Option, RecipePart
from pipeline_assets.corpus.spine.staging import WORK, BuildFolder, OutputFile, Receipt
from pipeline_assets.corpus.spine.worker import KILLED_WORKER, WHOLE, Window, grouped_by_size

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


_SINCE = (("2018-05-02", "cc-by-sa-4.0"), ("2011-04-08", "cc-by-sa-3.0"), ("", "cc-by-sa-2.5"))
_LICENCE_NAME = re.compile(r"CC BY-SA (2\.5|3\.0|4\.0)")
_is_moment = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}").fullmatch  # as the dumps do
_TAG_NAME = re.compile(r"[^<>|]+")  # in `<a><b>`, as it was, and in `|a|b|`, as newer dumps have it
_META = (
    "score",
    "view_count",
    "answer_count",
    "comment_count",
    "favorite_count",
    "accepted_answer_id",
    "owner_user_id",
    "last_edit_date",
    "last_activity_date",
    "closed_date",
    "community_owned_date",
    "content_license",
)


class SiteRecipe(RecipePart):
    """One site, and which of its threads are kept, and which answers in them.

    Attributes:
        host: `beer.stackexchange.com`.
        min_answers: answers that are kept count.
    """

    source: str
    domain: Annotated[str, Option("What kind of text.")] = "questions"
    host: str
    min_question_score: Annotated[int | None, Option("Threads below are left out.")] = None
    min_answer_score: Annotated[int | None, Option("Answers below are left out.")] = None
    min_answers: Annotated[int, Option("Threads with fewer are left out.")] = pydantic.Field(0, ge=0)


@dataclass(frozen=True)
class Dropped:
    """A post that a rule keeps out: where it was, and the rule's code."""

    file: str
    row: int
    reason: str


Outcome = Document | Reject | Dropped


def read_threads(bucket: Bucket, file: str, recipe: SiteRecipe, window: Window = WHOLE) -> Iterator[Outcome]:
    """What becomes of every row of a bucket: Documents by question id and what the rules drop; last the rejects by row.

    The accepted answer comes first, then the others by score from high to low, then by id. A Document's posts are its
    question, at `source_row`, and those that `answers` lists, in `extra` of its `meta`.

    Reject reasons: `invalid_character`, `invalid_utf8`, `missing_attribute`, `wrong_type`; `duplicate_post`, an id that
    came before in the thread; `no_question`, an answer to a question that isn't there; `killed_worker`, which come
    first. Dropped: `low_question_score`, `low_answer_score`, `few_answers`, each for every post it takes;
    `empty_answer`, one without text.

    Args:
        file: the dump's, as the manifest lists it.
        window: rows are numbered in the order of questions, then of the file.
    Raises:
        InputError: a spilled run is damaged.
    """
    rows = []
    for place, row in window.of(read_bucket(bucket), 0):
        if place in window.fatal:
            yield Reject(file, row[1], KILLED_WORKER)
        else:
            rows.append(row)
    rejects: list[Reject] = []
    for question_id, members in groupby(rows, itemgetter(0)):
        posts, faults = _posts_and_faults(members)
        if not any(post.post_type_id == QUESTION for post in posts):
            missing = Fault("no_question", f"question {question_id} is not in the file, or rejected")
            faults |= {post.row: missing for post in posts}
            posts = []
        rejects += [fault.rejected(file, number) for number, fault in faults.items()]
        if posts:
            yield from _thread(posts, file, recipe)
    yield from sorted(rejects, key=attrgetter("row"))


def _posts_and_faults(rows: Iterable[SpilledRow]) -> tuple[list[Post], dict[int, Fault]]:
    """Posts, each id once; what is wrong with other rows, by their number."""
    posts: dict[int, Post] = {}
    faults: dict[int, Fault] = {}
    for row in rows:
        post = read_post(row)
        if isinstance(post, Fault):
            faults[row[1]] = post
        elif posts.setdefault(post.id, post) is not post:
            faults[row[1]] = Fault("duplicate_post", "its Id came before")
    return list(posts.values()), faults


def _thread(posts: Sequence[Post], file: str, recipe: SiteRecipe) -> Iterator[Document | Dropped]:
    """Of the posts of one thread, its question among them."""
    [question] = (post for post in posts if post.post_type_id == QUESTION)
    if recipe.min_question_score is not None and question.score < recipe.min_question_score:
        yield from (Dropped(file, post.row, "low_question_score") for post in posts)
        return
    answers: list[tuple[Post, str]] = []
    accepted = question.accepted_answer_id
    for post in sorted(posts, key=lambda post: (post.id != accepted, -post.score, post.id)):
        if post is question:
            continue
        if recipe.min_answer_score is not None and post.score < recipe.min_answer_score:
            yield Dropped(file, post.row, "low_answer_score")
        elif text := body_text(post.body):
            answers.append((post, text))
        else:
            yield Dropped(file, post.row, "empty_answer")
    if len(answers) < recipe.min_answers:
        kept = [question, *(post for post, _ in answers)]
        yield from (Dropped(file, post.row, "few_answers") for post in kept)
        return
    yield _document(question, answers, file, recipe)


def _document(question: Post, answers: Sequence[tuple[Post, str]], file: str, recipe: SiteRecipe) -> Document:
    """Of a question and its answers, with their texts."""
    posts = [question, *(post for post, _ in answers)]
    licences = [_licence_of_post(post.content_license, post.creation_date[:10]) for post in posts]
    licence = _licence_of_thread(licences)
    parts = [" ".join((question.title or "").split()), body_text(question.body)]
    parts += [f"Answer:\n\n{text}" for _, text in answers]
    columns = {
        "site": recipe.host,
        "url": f"https://{recipe.host}/questions/{question.id}",
        "title": question.title or "",
        **{name: getattr(question, name) for name in _META},
        "tags": _TAG_NAME.findall(question.tags or ""),
        "answers": [
            {
                "id": post.id,
                "score": post.score,
                "owner_user_id": post.owner_user_id,
                "created_at": _moment_of(post.creation_date),
                "license_tag": licence.tag,
                "source_row": post.row,
            }
            for post, licence in zip(posts[1:], licences[1:], strict=True)
        ],
    }
    return Document(
        text="\n\n".join(filter(None, parts)),
        source=recipe.source,
        domain=recipe.domain,
        doc_id=f"stackexchange:{recipe.host}:{question.id}",
        license_tag=licence.tag,
        created_at=_moment_of(question.creation_date),
        meta=Meta.of(file, question.row, columns, licence.evidence),
    )


def _moment_of(date: str) -> str:
    return date if _is_moment(date) else moment_of(date)


@lru_cache(maxsize=10_000)
def _licence_of_post(content_license: str | None, created_on: str) -> Licensed:
    """By the attribute, None where the dump has none; else by the post's date, ISO 8601 and UTC."""
    if content_license is not None:
        version = _LICENCE_NAME.fullmatch(content_license)
        tag = f"cc-by-sa-{version[1]}" if version else UNKNOWN
        return Licensed(tag, "row: ContentLicense" if version else f"row: ContentLicense {content_license}")
    tag = next(tag for since, tag in _SINCE if created_on >= since)
    return Licensed(tag, f"date: {created_on}")


def _licence_of_thread(posts: Sequence[Licensed]) -> Licensed:
    """The newest licence of its posts, the question's first; the evidence counts them if they differ."""
    if len({licence.tag for licence in posts}) == 1:
        return posts[0]
    tags = Counter(licence.tag for licence in posts)
    newest = max(posts, key=lambda licence: (licence.tag == UNKNOWN, licence.tag))
    counted = ", ".join(f"{count} {tag}" for tag, count in sorted(tags.items()))
    return Licensed(newest.tag, f"{newest.evidence}; newest of {counted}")
