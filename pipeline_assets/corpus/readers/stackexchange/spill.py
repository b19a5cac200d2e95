"""Pass 1: rows of a Posts.xml, or of a site's .7z, sorted by question into runs. Read once, from front to back."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.readers.stackexchange.archive import MOST_EXPANSION, POSTS, is_archive, pour, pour_archive
from pipeline_assets.corpus.readers.stackexchange.buckets import Run
from pipeline_assets.corpus.readers.stackexchange.row_scan import (
    AS_DUMPED,
    FORBIDDEN,
    NO_NUMBER,
    NOT_UTF8,
    OTHERWISE,
    PARENT_ID,
    POST_ID,
    POST_TYPE,
    START,
    STATE,
    STOP,
)
from pipeline_assets.corpus.readers.stackexchange.rows import PostsXml, ScannedRows, as_dumped
from pipeline_assets.corpus.spine.ledger import dropped_key
from pipeline_assets.corpus.spine.sealing import WORK
from pipeline_assets.corpus.spine.staging import BuildFolder, OutputFile, Receipt
from pipeline_assets.corpus.spine.worker import Window

SPILLED = f"{WORK}/spilled"
RANGE_BYTES = 1 << 30
RUN_BYTES = 1 << 27
NOT_A_THREAD = -(1 << 60)  # keys of rejected rows lie from here on
_QUESTION, _ANSWER, _LAST_POST_TYPE = 1, 2, 99
_ROW = b"<row"
_REASONS = {
    FORBIDDEN: "invalid_character: one that XML does not have",
    NOT_UTF8: "invalid_utf8: a value is no UTF-8",
}
_POST_TYPES = {
    3: "orphaned_tag_wiki",
    4: "tag_wiki_excerpt",
    5: "tag_wiki",
    6: "moderator_nomination",
    7: "wiki_placeholder",
    8: "privilege_wiki",
}


@dataclass(frozen=True)
class SpillShard:
    """A part of a file, from row to row; of an archive the whole. `rows` aren't known before they are read."""

    name: str
    file: Path
    start: int
    stop: int | None
    rows: int = 0


def plan_spill(file: Path, name: str, range_bytes: int = RANGE_BYTES) -> list[SpillShard]:
    """Parts of about `range_bytes`: a build that is stopped goes on with the part it was in. An archive is one part.

    Args:
        name: of the shards, to which their number is added.
    """
    if is_archive(file):
        return [SpillShard(f"{name}-00000", file, 0, None)]
    cuts = [0, *_cuts(file, range_bytes)]
    stops: list[int | None] = [*cuts[1:], None]
    pairs = enumerate(zip(cuts, stops, strict=True))
    return [SpillShard(f"{name}-{number:05d}", file, start, stop) for number, (start, stop) in pairs]


def _cuts(file: Path, range_bytes: int) -> Iterator[int]:
    """Where rows begin, the first at or after each multiple of `range_bytes`: a `<` stands in no value."""
    size, cut = file.stat().st_size, 0
    with open(file, "rb", buffering=0) as source:
        for target in range(range_bytes, size, range_bytes):
            at = max(target, cut + 1)
            found = -1
            while found < 0:
                source.seek(at)
                block = source.read(1 << 16)
                found = block.find(_ROW)
                if found < 0 and len(block) < len(_ROW):
                    return
                at += found if found >= 0 else len(block) - len(_ROW) + 1
            cut = at
            yield cut


def spill_rows(
    shard: SpillShard,
    window: Window,
    folder: BuildFolder,
    run_bytes: int = RUN_BYTES,
    most_expansion: int = MOST_EXPANSION,
) -> Receipt:
    """The runs of a part of a file, a stage for the engine. Memory: `run_bytes` and what Python adds to a row.

    Args:
        window: has no part in this: no row is looked into.
        most_expansion: see `pour_archive`.
    Returns:
        Files: the runs. Counts: `rows` read; `spilled`, which pass 2 will account for one by one;
        `dropped/<post type>`, posts that are neither question nor answer.
    Raises:
        InputError: the file can't be read to its end.
    """
    is_packed = is_archive(shard.file)
    where = f"{shard.file}/{POSTS}" if is_packed else str(shard.file)
    spill = _Spill(PostsXml(where, shard.start, shard.stop is None), folder, f"{SPILLED}/{shard.name}", run_bytes)
    if is_packed:
        pour_archive(shard.file, spill.take, most_expansion)
    else:
        pour(shard.file, spill.take, shard.start, shard.stop)
    return spill.close()


class _Spill:
    """Rows on their way from a file into runs."""

    def __init__(self, posts: PostsXml, folder: BuildFolder, stem: str, run_bytes: int) -> None:
        self._posts, self._folder, self._stem, self._run_bytes = posts, folder, stem, run_bytes
        self._run, self._rows = Run(run_bytes), 0
        self._dropped: Counter[int] = Counter()
        self._files: list[OutputFile] = []

    def take(self, block: bytes) -> None:
        """The next bytes of the file."""
        for data, rows in self._posts.feed(block):
            self._add(data, rows)
            if self._run.size >= self._run_bytes:
                self._write()

    def _add(self, data: bytes, rows: ScannedRows) -> None:
        numbers = np.arange(self._rows, self._rows + len(rows))
        self._rows += len(rows)
        keys = _keys(rows)
        is_post = (keys > 0) & (rows[:, STATE] == AS_DUMPED)
        for place in np.flatnonzero(~is_post).tolist():
            self._add_other(data[rows[place, START] : rows[place, STOP]], rows[place], numbers[place : place + 1])
        self._run.add(keys[is_post], numbers[is_post], data, rows[is_post, START], rows[is_post, STOP])

    def _add_other(self, line: bytes, row: ScannedRows, number: NDArray[np.int64]) -> None:
        """A row that is no question or answer, or not as the dumps have them."""
        reason = _REASONS.get(int(row[STATE]), "")
        if row[STATE] == OTHERWISE:
            line, row = as_dumped(line)
        post_type = int(row[POST_TYPE])
        if _ANSWER < post_type <= _LAST_POST_TYPE:
            self._dropped[post_type] += 1
            return
        key = _keys(row[None])
        if not reason and key[0] <= 0:
            reason = "missing_attribute: no number in Id, PostTypeId or ParentId"
        if reason:
            key, line = NOT_A_THREAD + number, reason.encode()
        self._run.add(key, number, line, np.array([0]), np.array([len(line)]))

    def _write(self) -> None:
        if self._run.size:
            self._files.append(self._run.write(self._folder, f"{self._stem}-{len(self._files):05d}"))

    def close(self) -> Receipt:
        """All is written."""
        self._posts.close()
        self._write()
        by_type = {dropped_key(_POST_TYPES.get(kind, f"post_type_{kind}")): n for kind, n in self._dropped.items()}
        spilled = self._rows - self._dropped.total()
        return Receipt(self._files, dict(sorted({"rows": self._rows, "spilled": spilled, **by_type}.items())))


def _keys(rows: ScannedRows) -> NDArray[np.int64]:
    """The question that each row belongs to; 0 or less if it is no question or answer, or doesn't say."""
    is_question, is_answer = rows[:, POST_TYPE] == _QUESTION, rows[:, POST_TYPE] == _ANSWER
    key = np.where(is_question, rows[:, POST_ID], rows[:, PARENT_ID])
    return np.where((is_question | is_answer) & (rows[:, POST_ID] > 0), key, NO_NUMBER)
