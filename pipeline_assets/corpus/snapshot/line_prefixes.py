"""The first rows of a hub dataset's files of JSON lines, of each file so many as its share of the amount.

A compressed file can't be entered midway, and a file of lines has no footer: rows are counted as they are fetched, by
one pass over the bytes. Plain and compressed files are drawn alike. A file stands in the plan as one row group. Row
numbers count from 0, without blank lines, as `datasets` numbers them.
"""

import functools
import io
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, BinaryIO

from pipeline_assets.corpus.formats.compression import decompressed, detect_codec
from pipeline_assets.corpus.readers.column_recipe import another_column
from pipeline_assets.corpus.readers.columns import Fault, find_column
from pipeline_assets.corpus.readers.hub_files import HubFiles, Span, check_file_hash, delete_spans, in_order
from pipeline_assets.corpus.readers.hub_listing import HubFile
from pipeline_assets.corpus.readers.hub_parquet import RowGroup
from pipeline_assets.corpus.readers.lines import lines_with_offsets, raise_if_document, read_row
from pipeline_assets.corpus.readers.source_folder import HEAD_BYTES
from pipeline_assets.corpus.snapshot.recipe import SnapshotRecipe, Unit
from pipeline_assets.spine.errors import InputError, RetryableError, UsageError
from pipeline_assets.spine.files import seeded_rank
from pipeline_assets.spine.progress import Progress

# Of a file that is drawn at least this is read: a request for a few rows costs as much as one for a thousand.
LEAST: dict[Unit, int] = {"documents": 1000, "text_bytes": 1 << 22}
_FIRST_BLOCK_BYTES, _LARGEST_BLOCK_BYTES = 1 << 22, 1 << 26
_TEXT_BLOCK_BYTES = 1 << 20
_HEAD_ROWS = 100
_DAMAGED = "the file is damaged: pin another commit, or leave it out of `files`"


class SpanStream:
    """Spans of a file, from its first byte on, as one stream.

    Attributes:
        read_spans: those that were begun.
    """

    def __init__(self, spans: Iterable[Span]) -> None:
        self.read_spans: list[Span] = []
        self._coming = iter(spans)
        self._file: BinaryIO = io.BytesIO()

    def close(self) -> None:
        self._file.close()

    def head(self) -> bytes:
        """The first bytes, which stay to be read."""
        head = self.read(HEAD_BYTES)
        if self.read_spans:
            self._file.seek(0)
        return head

    def read(self, size: int = -1, /) -> bytes:
        """At most so many bytes; none at the end of the last span."""
        while not (block := self._file.read(size)):
            span = next(self._coming, None)
            if span is None:
                return b""
            self._file.close()
            self.read_spans.append(span)
            self._file = open(span.local, "rb")  # noqa: SIM115, closed above and at the end
        return block


@dataclass(frozen=True)
class Prefix:
    """The first rows of a file.

    Attributes:
        line_bytes: of these rows, uncompressed.
        stop: bytes of the file that were fetched for them, from its start on.
        is_whole, is_packed: whether the file has no more, and whether it is compressed.
        columns: that some of the first rows have.
    """

    rows: int
    line_bytes: int
    stop: int
    is_whole: bool
    is_packed: bool
    columns: tuple[str, ...]

    def row_group(self, file: HubFile) -> RowGroup:
        """The rows as a plan has them."""
        return RowGroup(file, 0, 0, self.rows, 0, self.stop, self.line_bytes)


def block_ranges(size: int, stop: int | None = None) -> Iterator[tuple[int, int]]:
    """Bytes [start, stop) of the blocks in which a file of lines is fetched, each twice the one before, up to 64 MiB: a
    few rows cost little traffic, and a large file few requests.

    Args:
        stop: blocks that begin there or later are left out.
    """
    start, step = 0, _FIRST_BLOCK_BYTES
    while start < (size if stop is None else stop):
        yield start, min(start + step, size)
        start, step = start + step, min(2 * step, _LARGEST_BLOCK_BYTES)


def row_lines(source: SpanStream, where: str) -> Iterator[bytes]:
    """Lines of a file that are not blank, decompressed as they are asked for: memory is a block, or the longest line.

    Raises:
        InputError: the stream is cut off or damaged, which the cache forgets then; a line is too long; it is UTF-16.
    """
    try:
        text = decompressed(source, detect_codec(source.head()), where, _DAMAGED, _TEXT_BLOCK_BYTES)
        for _, block in lines_with_offsets(text, 0, where):
            yield from (line for line in io.BytesIO(block) if not line.isspace())
    except RetryableError:
        raise
    except InputError:
        delete_spans(source.read_spans)
        raise


def read_prefix(hub: HubFiles, recipe: SnapshotRecipe, unit: Unit, file: HubFile, limit: int | None) -> Prefix:
    """The first rows of a file, fetched as far as they reach; a file that is fetched whole is held against its hash.

    Args:
        unit: of the limit: rows, or bytes of lines, of which the line that reaches it is the last.
        limit: None for all rows.
    Raises:
        InputError: from the hub or `row_lines`, or it is one JSON value over many lines.
        UsageError: no row of the first hundred has a column that the recipe names for the text or a rule.
    """
    where = recipe.where(file.path)
    rows, line_bytes, is_whole = 0, 0, True
    head: list[dict[str, Any]] = []
    with closing(_stream(hub, recipe.dataset, recipe.revision, file)) as source:
        codec = detect_codec(source.head())
        for line in row_lines(source, where):
            if rows < _HEAD_ROWS:
                row = read_row(line)
                head += [row] if isinstance(row, dict) else []
                if not rows and not head:
                    raise_if_document(line, where)
            rows, line_bytes = rows + 1, line_bytes + len(line)
            if limit is not None and (rows if unit == "documents" else line_bytes) >= limit:
                is_whole = False
                break
    if is_whole and len(source.read_spans) > 1:  # one alone was held against it when it was fetched
        check_file_hash(file, source.read_spans, where)
    _check_columns(head, recipe, where)
    stop = source.read_spans[-1].stop if source.read_spans else 0
    return Prefix(rows, line_bytes, stop, is_whole, codec is not None, _names(head))


def _stream(hub: HubFiles, dataset: str, commit: str, file: HubFile) -> SpanStream:
    """The file as it is fetched, a block when it is come to."""
    return SpanStream(hub.fetch(dataset, commit, file, start, stop) for start, stop in block_ranges(file.size))


def head_columns(hub: HubFiles, dataset: str, commit: str, file: HubFile) -> tuple[str, ...]:
    """Names of the columns that some of the first rows have."""
    with closing(_stream(hub, dataset, commit, file)) as source:
        lines = row_lines(source, f"{dataset}@{commit}:{file.path}")
        return _names(read_row(line) for line in itertools.islice(lines, _HEAD_ROWS))


def draw_prefixes(
    files: Sequence[HubFile],
    read: Callable[[HubFile, int | None], Prefix],
    seed: str,
    limit: tuple[Unit, int],
    threads: int,
    progress: Progress,
) -> dict[str, Prefix]:
    """What is read of which file, in rank; all there is where that is less than the limit.

    Each file gives a share by its size, `LEAST` if that is more, until the amount is reached. What short files leave of
    it, the others give, by reading on.

    Args:
        read: the first rows of a file up to a limit, None for all; called by so many threads at a time.
    """
    unit, amount = limit
    ranked = sorted(files, key=lambda file: seeded_rank(seed, file.path))
    drawn: dict[str, Prefix] = {}
    asked: dict[HubFile, int | None] = dict.fromkeys(ranked[:amount])
    if unit != "files":
        asked = dict(_shares(ranked, amount, unit))
    while asked:
        for file, prefix in zip(asked, in_order(lambda one: read(*one), asked.items(), threads), strict=True):
            drawn[file.path] = prefix
            progress.add(1, {"rows": prefix.rows})
        taken = {path: prefix.rows if unit == "documents" else prefix.line_bytes for path, prefix in drawn.items()}
        going_on = [file for file in ranked if file.path not in drawn or not drawn[file.path].is_whole]
        left = 0 if unit == "files" else amount - sum(taken.values())
        asked = {file: share + taken.get(file.path, 0) for file, share in _shares(going_on, left, unit)}
    return {file.path: drawn[file.path] for file in ranked if file.path in drawn}


def read_prefixes(
    hub: HubFiles,
    recipe: SnapshotRecipe,
    listing: Sequence[HubFile],
    threads: int,
    log_every_s: float,
    pinned: Sequence[Mapping[str, Any]],
) -> dict[str, Prefix]:
    """What is read of which file: drawn, or, where a raw pin has its inputs, known from these."""
    if pinned:
        entries = {entry["name"]: entry for entry in pinned if "row_groups" in entry}
        listed = [(file, entries.get(recipe.where(file.path))) for file in listing]
        return {file.path: _known_prefix(hub, recipe, file, entry) for file, entry in listed if entry is not None}
    limit = recipe.amount.limit
    progress = Progress(f"draw {recipe.source}", len(listing), "files", log_every_s)
    read = functools.partial(read_prefix, hub, recipe, limit[0])
    return draw_prefixes(listing, read, recipe.seed, limit, threads, progress)


def _known_prefix(hub: HubFiles, recipe: SnapshotRecipe, file: HubFile, listed: Mapping[str, Any]) -> Prefix:
    """What a manifest's entry says was read of a file; only its first rows are looked at, for their columns."""
    [group] = listed["row_groups"]
    head = read_prefix(hub, recipe, "documents", file, min(group["rows"], _HEAD_ROWS) or None)
    line_bytes = group["stop"] * (4 if head.is_packed else 1)
    return Prefix(group["rows"], line_bytes, group["stop"], group["stop"] == file.size, head.is_packed, head.columns)


def _shares(files: Sequence[HubFile], amount: int, unit: Unit) -> Iterator[tuple[HubFile, int]]:
    size = max(sum(file.size for file in files), 1)
    left = amount
    for file in files:
        if left <= 0:
            return
        share = min(left, max(LEAST[unit], -(-amount * file.size // size)))
        left -= share
        yield file, share


def _check_columns(head: Sequence[dict[str, Any]], recipe: SnapshotRecipe, where: str) -> None:
    """Raise UsageError if no row has a column that the recipe names for the text or a rule."""
    for column, fix in ({recipe.columns.text: another_column("text")} | recipe.rule_columns()).items():
        if head and not any(find_column(row, column) for row in head):
            there = ", ".join(_names(head)) or "none"
            raise UsageError(f"there is no column `{column}`; its first rows have {there}", where, fix)


def _names(rows: Iterable[dict[str, Any] | Fault]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for row in rows if isinstance(row, dict) for name in row))
