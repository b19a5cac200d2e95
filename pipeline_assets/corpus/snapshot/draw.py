"""What a snapshot takes from a hub dataset, drawn by hash: row groups of Parquet, or the first rows of files of JSON
lines.

Files are ranked by sha256(seed, path), the row groups of a file by sha256(seed, path, row group). The first pass takes
the best row group of each file in file rank, the second pass the second best, until there is enough. So a small sample
touches as many files, and dumps, as it has row groups, and no footer is fetched that isn't needed.

Of lines each file drawn gives its first rows, so many as its share of the amount. A compressed file can't be entered
midway, and a file of lines has no footer: rows are counted as they are fetched, by one pass over the bytes. Plain and
compressed files are drawn alike. A file stands in the plan as one row group. Row numbers count from 0, without blank
lines, as `datasets` numbers them.
"""

import io
import itertools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Annotated, Any, BinaryIO, Literal, Self

import pydantic

from pipeline_assets.corpus.filters.verdict import ColumnRule
from pipeline_assets.corpus.formats.compression import codec_of, decompressed
from pipeline_assets.corpus.readers.columns import ColumnMap, Fault, Patterns, another_column, find_column
from pipeline_assets.corpus.readers.hub_files import HubFile, HubFiles, Span, check_whole, forget, in_order
from pipeline_assets.corpus.readers.lines import placed_lines, read_row, refuse_document
from pipeline_assets.corpus.readers.parquet import RowGroup
from pipeline_assets.corpus.readers.source_folder import HEAD_BYTES
from pipeline_assets.corpus.spine.errors import InputError, RetryableError, UsageError, key
from pipeline_assets.corpus.spine.files import rank
from pipeline_assets.corpus.spine.recipe import COMMIT_PATTERN, SHARD_TEXT_BYTES, Name, Option, RecipePart, RejectShare
from pipeline_assets.corpus.spine.usage import Progress

Unit = Literal["files", "documents", "text_bytes"]
_UNITS: tuple[Unit, ...] = ("files", "documents", "text_bytes")


class Amount(RecipePart):
    """How much is read; exactly one key.

    Attributes:
        files: whole files, the first in rank.
        documents: source rows, before any filter; the last row group is cut.
        text_bytes: uncompressed bytes of the text column, as the footers say; the last row group is taken whole.
    """

    files: int | None = pydantic.Field(default=None, gt=0)
    documents: Annotated[
        int | None, Option("Rows to read, drawn over all files.", "max-documents", 100_000, ("--limit",))
    ] = pydantic.Field(default=None, gt=0)
    text_bytes: int | None = pydantic.Field(default=None, gt=0)

    @pydantic.model_validator(mode="after")
    def _has_one_unit(self) -> Self:
        if sum(getattr(self, unit) is not None for unit in _UNITS) != 1:
            raise ValueError(f"give exactly one of {', '.join(_UNITS)}")
        return self

    @property
    def limit(self) -> tuple[Unit, int]:
        """The unit that is counted and how many of it."""
        return next((unit, getattr(self, unit)) for unit in _UNITS if getattr(self, unit) is not None)


class HubRows(RecipePart):
    """One dataset, split and commit, and which of its rows become Documents.

    Attributes:
        files: patterns of paths in the dataset, as fnmatch reads them.
        rules: comparisons that a row must pass, `int_score >= 3`.
        language: value of the column `language` that is kept where that column exists; None keeps every language.
        seed: of the draw of row groups.
        max_reject_fraction: more bad rows than this stop the build.
    """

    dataset: str
    config: Annotated[
        str, Option("Config. Default: fineweb-2 eng_Latn, others default.", "config-name", None, ("--subset",))
    ] = "default"
    revision: Annotated[str, Option("Branch, tag or commit; its commit is written down.", default="main")]
    split: Annotated[str, Option("Split of the dataset.")] = "train"
    files: Patterns
    source: str
    domain: str = "web"
    license_tag: Annotated[
        str, Option("Licence, such as mit or unknown. Default: the card's or each row's.", "license", default=None)
    ] = "unknown"
    rules: Annotated[
        tuple[str, ...], pydantic.Field(strict=False), Option("A row must pass 'int_score >= 3'; repeatable.", "rule")
    ] = ()
    language: str | None = None
    amount: Amount
    seed: Annotated[str, Option("Of a sample's draw; nothing else is random.")] = "0"
    max_reject_fraction: RejectShare = "0.001"

    @pydantic.field_validator("dataset")
    @classmethod
    def _has_an_owner(cls, dataset: str) -> str:
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", dataset):
            raise ValueError("write owner/name, such as HuggingFaceFW/fineweb-edu")
        return dataset

    @pydantic.field_validator("revision")
    @classmethod
    def _is_a_commit(cls, revision: str) -> str:
        if not re.fullmatch(COMMIT_PATTERN, revision):
            what = "a revision is a commit of 40 hex digits, since a branch moves"
            raise ValueError(f"{what}; `corpusmill pin` gives the commit")
        return revision

    @pydantic.field_validator("rules")
    @classmethod
    def _can_be_read(cls, rules: tuple[str, ...]) -> tuple[str, ...]:
        for rule in rules:
            ColumnRule.parse(rule)
        return rules

    def row_rules(self, columns: Collection[str]) -> list[ColumnRule]:
        """What a row of these columns must pass: the rules, then the language where there is a column of it."""
        rules = [ColumnRule.parse(rule) for rule in self.rules]
        if self.language is None or "language" not in columns:
            return rules
        return [*rules, ColumnRule("language", "language", "==", self.language)]

    def rule_columns(self) -> dict[str, str]:
        """Columns that the rules ask for, each with what to do where there is no such column."""
        rules = key("rules", "in the recipe", "of {}")
        return {rule.column: f"correct the rule `{rule.text}` {rules}" for rule in self.row_rules(())}

    def where(self, path: str) -> str:
        """A file of the dataset, in an error."""
        return f"{self.dataset}@{self.revision}:{path}"


class SnapshotRecipe(HubRows):
    """Rows of a hub dataset as Document shards.

    Attributes:
        name: of the folder, `corpora/<name>/<commit>`: two samples of one commit need two names. Changes no byte.
        shard_text_bytes: a shard is closed by the row group that brings it to this size.
    """

    name: Name
    columns: ColumnMap = ColumnMap()
    shard_text_bytes: int = pydantic.Field(SHARD_TEXT_BYTES, gt=0)

    def rows_content(self) -> Mapping[str, Any]:
        """What the snapshot's bytes depend on: nothing of what is made from it, so that several sets can share it."""
        return {key: value for key, value in self.content().items() if key != "name"}

    @classmethod
    def of_rows(cls, content: Mapping[str, Any]) -> Self:
        """The recipe that `rows_content` wrote down; the name, which it leaves out, is made up.

        Raises:
            UsageError: this program reads no such recipe.
        """
        return cls.from_content({**content, "name": "unnamed"})


# Of a file that is drawn at least this is read: a request for a few rows costs as much as one for a thousand.
LEAST: dict[Unit, int] = {"documents": 1000, "text_bytes": 1 << 22}
_FIRST_BLOCK_BYTES, _LARGEST_BLOCK_BYTES = 1 << 22, 1 << 26
_TEXT_BLOCK_BYTES = 1 << 20
_HEAD_ROWS = 100
_DAMAGED = "the file is damaged: pin another commit, or leave it out of `files`"


@dataclass(frozen=True)
class Piece:
    """A row group, or its first rows where a limit of documents ends inside it."""

    group: RowGroup
    rows: int


def choose_pieces(
    files: Sequence[HubFile],
    row_groups_of: Callable[[Sequence[HubFile]], Iterable[list[RowGroup]]],
    seed: str,
    limit: tuple[Unit, int],
) -> list[Piece]:
    """The sample, in manifest order; all there is where that is less than the limit.

    Args:
        row_groups_of: reads the footers of some files, in their order; asked once for each file that the sample
            reaches, and for no other, unless later row groups are larger by a half than those before.
    """
    unit, amount = limit
    ranked = sorted(files, key=lambda file: rank(seed, file.path))
    if unit == "files":
        return [Piece(group, group.rows) for groups in row_groups_of(ranked[:amount]) for group in groups]
    ordered: list[list[RowGroup]] = []  # of the first files in rank
    pieces: list[Piece] = []
    taken = largest = 0
    for turn in itertools.count():
        for place in range(len(ranked)):
            if place == len(ordered):
                surely = (amount - taken) * 2 // (3 * largest) if largest else 1
                for groups in row_groups_of(ranked[place : place + max(surely, 1)]):
                    ordered.append(sorted(groups, key=lambda group: rank(seed, group.file.path, group.number)))
            if turn < len(ordered[place]):
                group = ordered[place][turn]
                rows = min(group.rows, amount - taken) if unit == "documents" else group.rows
                size = rows if unit == "documents" else group.text_bytes
                taken, largest = taken + size, max(largest, size)
                pieces.append(Piece(group, rows))
                if taken >= amount:
                    return pieces
        if all(turn >= len(groups) for groups in ordered):
            break
    return pieces


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
        text = decompressed(source, codec_of(source.head()), where, _DAMAGED, _TEXT_BLOCK_BYTES)
        for _, block in placed_lines(text, 0, where):
            yield from (line for line in io.BytesIO(block) if not line.isspace())
    except RetryableError:
        raise
    except InputError:
        forget(source.read_spans)
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
        codec = codec_of(source.head())
        for line in row_lines(source, where):
            if rows < _HEAD_ROWS:
                row = read_row(line)
                head += [row] if isinstance(row, dict) else []
                if not rows and not head:
                    refuse_document(line, where)
            rows, line_bytes = rows + 1, line_bytes + len(line)
            if limit is not None and (rows if unit == "documents" else line_bytes) >= limit:
                is_whole = False
                break
    if is_whole and len(source.read_spans) > 1:  # one alone was held against it when it was fetched
        check_whole(file, source.read_spans, where)
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
    ranked = sorted(files, key=lambda file: rank(seed, file.path))
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


def known_prefix(hub: HubFiles, recipe: SnapshotRecipe, file: HubFile, listed: Mapping[str, Any]) -> Prefix:
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
    """
    Raises:
        UsageError: no row has such a column for the text or a rule (names those present).
    """
    for column, fix in ({recipe.columns.text: another_column("text")} | recipe.rule_columns()).items():
        if head and not any(find_column(row, column) for row in head):
            there = ", ".join(_names(head)) or "none"
            raise UsageError(f"there is no column `{column}`; its first rows have {there}", where, fix)


def _names(rows: Iterable[dict[str, Any] | Fault]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for row in rows if isinstance(row, dict) for name in row))
