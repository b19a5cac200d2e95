"""What a kind of artifact says of its rows: all that tracing, peeking, comparing and exporting ask of it."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipeline_assets.build.rows.source_row import AnyRow, SourceListing, find_listing
from pipeline_assets.corpus.document import Document, Meta
from pipeline_assets.corpus.document_shards import REJECTS_FILE
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, read_line_blocks, read_structs
from pipeline_assets.corpus.formats.parquet import open_parquet
from pipeline_assets.corpus.harmony.parse import ParsedMessage
from pipeline_assets.corpus.tokens.tokenizer import Tokenizer
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.ledger import Reject
from pipeline_assets.spine.lineage import Lineage


@dataclass(frozen=True)
class Part:
    """What a row has of one document: all of it, or, of a packed row, some tokens.

    Attributes:
        id: of the document, or of the normalised row.
        source: which corpus the document is of.
        shard, shard_row: the line, from 0, or the row of a file: in the artifact itself where it holds texts, else in
            the corpus that it was made from.
        text: decoded from ids where the artifact holds tokens, special tokens by their names.
        column: the first of its tokens in the row.
        start: the first of them in the document.
        tokens: how many; None where nobody counted them.
        record: all that the row says, as its store read it; None where the artifact holds tokens.
    """

    id: str
    source: str
    shard: str
    shard_row: int
    text: str
    column: int = 0
    start: int = 0
    tokens: int | None = None
    record: Any = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class Row:
    """One row of an artifact, numbered from 0 over all files in manifest order. Of an artifact that holds tokens, where
    they begin in the token file, and their ids, padding left out.
    """

    number: int
    parts: tuple[Part, ...]
    first_token: int | None = None
    ids: NDArray[Any] | None = None
    padding: int = 0


@dataclass(frozen=True)
class Source:
    """The rows of a file, of a hub at a commit or of this machine, that a text came from: of a thread its question's,
    then its answers', in the order of the text. The file's digest is as it was listed when it was read; the evidence is
    what the licence tag of the text rests on: `recipe`, `row: license`.
    """

    file: str
    rows: tuple[AnyRow, ...]
    digest: str
    license_tag: str
    license_evidence: str


@dataclass(frozen=True)
class Content:
    """What is compared of a row: its text, or its tokens, as bytes; and what else is said of it."""

    id: str
    content: bytes
    labels: bytes = b""


@dataclass(frozen=True)
class Fate:
    """What became of a document, or of a row of a source, in one artifact.

    Attributes:
        outcome: `kept`, `dropped`, …, by the kind.
        detail: why, in words; empty where it is kept.
        place: where it is, as JSON has it; empty where it isn't.
        row: its number there, the first of several; None where it isn't.
        details: what else the kind says, as JSON has it.
        lines: the same, for people.
    """

    artifact: Artifact
    outcome: str
    detail: str = ""
    place: Mapping[str, Any] = field(default_factory=dict)
    row: int | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    lines: Sequence[str] = ()

    @property
    def summary(self) -> str:
        """Outcome and detail, or where it is."""
        outcome = self.outcome.replace("_", " ")
        if not self.place:
            return f"{outcome}: {self.detail}" if self.detail else outcome
        if "sequence" in self.place:
            return "sequence {sequence:,}, tokens {first_token:,} to {last_token:,}".format(**self.place)
        return f"{outcome}, {self.place['shard']} row {self.place['shard_row']:,}"


@dataclass(frozen=True)
class Labels:
    """Words for an artifact of a kind, a group of them in JSON, a row, how its text begins, what besides the text is
    compared, if anything is, and what an artifact has in place of tokens.
    """

    artifact: str
    group: str
    row: str = "document"
    beginning: str = "text"
    other_changes: str = ""
    contents: str = "documents"


class RowStore(ABC):
    """The rows of one artifact. A kind says how they are stored, and what became here of a line upstream.

    Attributes:
        holds_tokens: whether its rows are tokens of texts that lie upstream, not texts.
        holds_several: whether a row has parts of several documents.
        reads_sources: whether rows of files became its rows, not rows of another artifact.
        reject_files: of those that didn't, files of `Reject` by what is said of their rows.
        tokenizer: what its tokens are of; None where it holds texts. InputError: its file is gone.
        id_name, advice: what ids are called, and what to do where no row has one.
    """

    labels: ClassVar[Labels]
    holds_tokens: ClassVar[bool] = False
    holds_several: ClassVar[bool] = False
    reads_sources: ClassVar[bool] = False
    reject_files: ClassVar[Mapping[str, str]] = {"rejected": REJECTS_FILE}
    id_name: ClassVar[str] = "doc_id"
    advice: ClassVar[str] = "`corpusmill trace --source` tells what became of a source row"

    def __init__(self, artifact: Artifact, lineage: Lineage) -> None:
        """The lineage is that of the data root below which lies what it was made from."""
        self.artifact, self.lineage = artifact, lineage
        self._listings: dict[str, SourceListing] = {}

    @property
    def tokenizer(self) -> Tokenizer | None:
        return None

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __iter__(self) -> Iterator[Content]:
        """Every row, in order, to be compared; of what has several documents in a row, nothing."""

    @abstractmethod
    def row_at(self, number: int) -> Row:
        """One row, and little else read. Raises UsageError where there is none, InputError where a file is damaged."""

    @abstractmethod
    def find(self, row_id: str) -> list[int]:
        """The rows that have a document, by its id; empty where none has it."""

    @abstractmethod
    def origin(self, part: Part) -> "UpstreamRow | Source":
        """What a part was made from. Raises InputError where it is gone, or contradicts the part."""

    def upstream_id(self, part: Part) -> str:
        """The id that a part has in what it was made from."""
        return part.id

    def missing_message(self, row_id: str) -> tuple[str, str]:
        """What is wrong, and what to do, where no row has an id."""
        return f"no {self.labels.row} has the {self.id_name} {row_id!r}", self.advice

    def check_range(self, what: str, number: int, count: int) -> None:
        """Raises UsageError where a number is not in 0 to count - 1."""
        if not 0 <= number < count:
            fix = f"give 0 to {count - 1:,}" if count else "it is empty: look into another one"
            raise UsageError(f"there is no {what} {number:,}", self.artifact.folder, fix)

    def row_of_token(self, position: int) -> int:
        """The row that a token of the token file belongs to. Raises UsageError where there is no such token."""
        raise UsageError(f"it has {self.labels.contents}, no tokens", self.artifact.folder, "give --row")

    def listing(self, source: str) -> SourceListing:
        """What lists the files that the rows of a source came from. Raises InputError where it is gone."""
        if source not in self._listings:
            self._listings[source] = find_listing(self.lineage, self.artifact, source)
        return self._listings[source]

    def find_source(self, file: str, source_row: int) -> tuple[int, bool] | None:
        """The row that a row of a source file became, and whether that is only a part of it, an answer of a thread;
        None if it became none.
        """
        return None

    def fate(self, part: Part) -> Fate | None:
        """What became here of a line of a corpus that this was made from; None where that line was none of its."""
        return None

    def rejects(self, name: str = REJECTS_FILE) -> Iterator[Reject]:
        """Rows of what it was made from that were not used, in order; of another file that tells of such, its rows."""
        return read_structs(self.artifact.path(name), Reject)

    def find_reject_row(self, file: str, row: int, name: str = REJECTS_FILE) -> Reject | None:
        """The reject of a row; None of one that was used."""
        return next((one for one in self.rejects(name) if (one.file, one.row) == (file, row)), None)

    def find_reject(self, file: str, row: int) -> tuple[str, Reject] | None:
        """What is said of a row that was kept aside, and why; None of one that wasn't."""
        told = ((outcome, self.find_reject_row(file, row, name)) for outcome, name in self.reject_files.items())
        return next(((outcome, reject) for outcome, reject in told if reject is not None), None)

    def figures(self, part: Part) -> Mapping[str, Any]:
        """What else is to be said of a part, as JSON has it."""
        return {}

    def messages(self, part: Part) -> Sequence[tuple[ParsedMessage, bool]] | None:
        """The messages of a part's text, each with whether its body counts in the loss, by the rule that the row names;
        none of a text that is no Harmony. None where the rows are no conversations, or this program has no such rule.
        """
        return None

    def beginning(self, text: str) -> str:
        """How a text begins, from where a reader wants to begin."""
        return text

    def table_shards(self) -> "list[TableShard]":
        """The shards as Arrow tables, in manifest order. Raises UsageError where the rows are no text."""
        fix = "give documents (normalized, filtered, deduplicated, …) or normalised rows"
        raise UsageError(f"this is {self.artifact.manifest.kind}, whose rows are no text", self.artifact.folder, fix)


@dataclass(frozen=True)
class UpstreamRow:
    """A row of an artifact upstream: the text that a part was made from."""

    store: RowStore
    number: int

    def part(self) -> Part:
        """What it holds."""
        [part] = self.store.row_at(self.number).parts
        return part


def reject_summary(reject: Reject) -> str:
    """The reason of a reject, and what was seen."""
    return reject.reason + (f" ({reject.detail})" if reject.detail else "")


def source_in(listing: SourceListing, file: str, rows: Sequence[int], license_tag: str, evidence: str) -> Source:
    """Rows of a file that a source lists. Raises InputError where it lists no such file."""
    found = tuple(listing.row(file, row) for row in rows)
    return Source(file, found, listing.file_entry(file)["digest"], license_tag, evidence)


def encode_document(tokenizer: Tokenizer, text: str) -> NDArray[np.int32]:
    """A document's tokens, with its end."""
    return np.append(tokenizer.encode([text]).ids, np.int32(tokenizer.end_of_document))


_TYPES = {str: pa.string(), int: pa.int64()}


def _fields(struct: type[msgspec.Struct]) -> list[pa.Field]:
    return [
        pa.field(one.name, pa.struct(_fields(Meta)) if one.type is Meta else _TYPES[one.type], nullable=False)
        for one in msgspec.structs.fields(struct)
    ]


# Texts of more than 2 GiB may lie in one table.
DOCUMENT_SCHEMA = pa.schema(_fields(Document)).set(0, pa.field("text", pa.large_string(), nullable=False))
DOCUMENT_DECODER = msgspec.json.Decoder(Document)


@dataclass(frozen=True)
class TableShard:
    """A shard of rows: of Documents in lines, or a Parquet file, whose schema is that of all shards of its artifact."""

    file: Path

    @cached_property
    def schema(self) -> pa.Schema:
        is_lines = self.file.name.endswith(SUFFIX)
        return DOCUMENT_SCHEMA if is_lines else pq.read_schema(self.file).remove_metadata()

    def tables(self) -> Iterator[pa.Table]:
        """Its rows, in order, in pieces that fit in memory. Raises InputError where the file is damaged."""
        if self.file.name.endswith(SUFFIX):
            for block in read_line_blocks(self.file):
                documents = msgspec.to_builtins(DOCUMENT_DECODER.decode_lines(block))
                yield pa.Table.from_pylist(documents, schema=self.schema)
        else:
            with open_parquet(self.file) as parquet:
                for group in range(parquet.num_row_groups):
                    yield parquet.read_row_group(group).cast(self.schema)
