"""Rows of a corpus of Documents: the Documents, where each came from, and its rejects."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from pipeline_assets.corpus.document import Document
from pipeline_assets.corpus.document_shards import shard_rows
from pipeline_assets.corpus.formats.jsonl_zst import read_line_blocks
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.errors import InputError, UsageError
from pipeline_assets.corpus.spine.rejects import Reject

_THREADS = "stackexchange"


@dataclass(frozen=True)
class DocumentLine:
    """Where a Document lies: its line, from 0, of a shard."""

    shard: str
    row: int
    doc_id: str


class Origin(msgspec.Struct):
    """The keys of a Document's `meta` that say where it came from."""

    source_file: str
    source_row: int


class Answer(msgspec.Struct):
    """What of an answer in a thread's `meta` says where it came from."""

    source_row: int


class ThreadOrigin(Origin):
    """The same of a thread, whose answers came from rows of their own in the same file."""

    answers: list[Answer]


class _DocumentOrigin(msgspec.Struct):
    doc_id: str
    meta: Origin


class _ThreadDocumentOrigin(msgspec.Struct):
    doc_id: str
    meta: ThreadOrigin


class _DocumentId(msgspec.Struct):
    doc_id: str


_document_decoder = msgspec.json.Decoder(Document)
_id_decoder = msgspec.json.Decoder(_DocumentId)
_reject_decoder = msgspec.json.Decoder(Reject)


def read_document(shard: Path, row: int) -> Document:
    """The Document in a line of a shard, from 0.

    Raises:
        InputError: the shard is shorter, or the line is no Document.
    """
    first_row = 0
    for block in read_line_blocks(shard):
        rows = block.count(b"\n")
        if row < first_row + rows:
            try:
                return _document_decoder.decode(block.split(b"\n", row - first_row + 1)[row - first_row])
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise InputError(f"row {row} is no Document ({error})", shard, "verify the snapshot") from None
        first_row += rows
    raise InputError(f"it has {first_row:,} rows, none is row {row:,}", shard, "run `corpusmill verify` on its folder")


def line_of_row(corpus: Artifact, row: int) -> tuple[str, int]:
    """(shard, row in it) of a Document, by its number over all shards in manifest order.

    Raises:
        UsageError: out of range (says which is in range).
    """
    shards = shard_rows(corpus)
    check_range("row", row, sum(shards.values()), corpus.folder)
    for shard, rows in shards.items():
        if row < rows:
            return shard, row
        row -= rows
    raise AssertionError("the range was checked")


def line_of_doc_id(corpus: Artifact, doc_id: str, shards: Sequence[str] | None = None) -> DocumentLine | None:
    """Where the Document of an id lies; None if there is none.

    Args:
        shards: where to look; None looks everywhere.
    """
    for shard in shard_rows(corpus) if shards is None else shards:
        first_row = 0
        for block in read_line_blocks(corpus.path(shard)):
            documents = _id_decoder.decode_lines(block)
            for row, document in enumerate(documents, first_row):
                if document.doc_id == doc_id:
                    return DocumentLine(shard, row, doc_id)
            first_row += len(documents)
    return None


def line_of_source(corpus: Artifact, path: str, source_row: int) -> tuple[DocumentLine, bool] | None:
    """The Document that a row of a source file became, and whether the row is only a part of it, an answer of a thread;
    None if it became none.
    """
    has_answers = corpus.manifest.identity.recipe.get("kind") == _THREADS
    decoder: msgspec.json.Decoder[_DocumentOrigin | _ThreadDocumentOrigin]
    decoder = msgspec.json.Decoder(_ThreadDocumentOrigin if has_answers else _DocumentOrigin)
    for shard in shard_rows(corpus):
        first_row = 0
        for block in read_line_blocks(corpus.path(shard)):
            documents = decoder.decode_lines(block)
            for row, document in enumerate(documents, first_row):
                if document.meta.source_file == path and source_row in rows_of(document.meta):
                    return DocumentLine(shard, row, document.doc_id), document.meta.source_row != source_row
            first_row += len(documents)
    return None


def rows_of(origin: Origin) -> list[int]:
    """The rows of its file that a Document came from: its own, and those of its answers."""
    answers = origin.answers if isinstance(origin, ThreadOrigin) else []
    return [origin.source_row, *(answer.source_row for answer in answers)]


def origin_in(document: Document, corpus: Artifact) -> Origin:
    """What a Document's `meta` says of where it came from.

    Args:
        corpus: that it was read from a source into, whatever filtered it since.
    """
    has_answers = corpus.manifest.identity.recipe.get("kind") == _THREADS
    return msgspec.convert(document.meta, ThreadOrigin if has_answers else Origin)


def rejects_of(rejects: Path, file: str) -> Iterator[Reject]:
    """Rejects of one input file, in order."""
    return (reject for reject in read_rejects(rejects) if reject.file == file)


def read_rejects(rejects: Path) -> Iterator[Reject]:
    """All rejects of an artifact, in order."""
    for block in read_line_blocks(rejects):
        yield from _reject_decoder.decode_lines(block)


def check_range(what: str, number: int, count: int, where: Path) -> None:
    """
    Raises:
        UsageError: number is not in 0 to count - 1 (says which are).
    """
    if not 0 <= number < count:
        fix = f"give 0 to {count - 1:,}" if count else "it is empty: look into another one"
        raise UsageError(f"there is no {what} {number:,}", where, fix)
