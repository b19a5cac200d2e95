"""Rows of corpora of Documents, `shards/*.jsonl.zst`; `snapshots.py` and `derived.py` have what each kind adds."""

import itertools
from collections.abc import Iterator, Sequence
from typing import TypeVar

import msgspec

from pipeline_assets.corpus.document import Document, Meta
from pipeline_assets.corpus.document_shards import SHARDS
from pipeline_assets.corpus.formats.jsonl_zst import read_line_blocks, read_structs
from pipeline_assets.corpus.readers.source_folder import format_of
from pipeline_assets.corpus.rows.files import FileRows
from pipeline_assets.corpus.rows.store import Content, Labels, Line, Part, Row, Source
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.errors import InputError

T = TypeVar("T")
_THREADS = "stackexchange"
BESIDES = "another source, domain, licence or date"


class _Answer(msgspec.Struct):
    source_row: int


class _Thread(msgspec.Struct):
    answers: list[_Answer]


class _Placed(msgspec.Struct):
    meta: Meta


class _Id(msgspec.Struct):
    doc_id: str
    source: str


class _Compared(msgspec.Struct):
    """What of a Document is compared: not its `meta`, which says on which row it was this time."""

    doc_id: str
    text: str
    source: str
    domain: str
    license_tag: str
    created_at: str


DOCUMENT_DECODER = msgspec.json.Decoder(Document)
_placed_decoder = msgspec.json.Decoder(_Placed)
_id_decoder = msgspec.json.Decoder(_Id)
_compared_decoder = msgspec.json.Decoder(_Compared)


class DocumentRows(FileRows):
    """The Documents of a corpus."""

    labels = Labels("corpus", "corpora", besides=BESIDES)
    folder = f"{SHARDS}/"

    def _read(self, decoder: msgspec.json.Decoder[T]) -> Iterator[T]:
        return itertools.chain.from_iterable(read_structs(self.artifact.path(shard), decoder) for shard in self.files)

    def __iter__(self) -> Iterator[Content]:
        for one in self._read(_compared_decoder):
            labels = msgspec.json.encode((one.source, one.domain, one.license_tag, one.created_at))
            yield Content(one.doc_id, one.text.encode("utf-8"), labels)

    def documents(self) -> Iterator[Document]:
        """All of them, in order; a block is in memory at a time."""
        return self._read(DOCUMENT_DECODER)

    def at(self, number: int) -> Row:
        shard, row = self.place_of(number)
        document = read_document(self.artifact, shard, row)
        return Row(number, (Part(document.doc_id, document.source, shard, row, document.text, record=document),))

    def find(self, row_id: str) -> list[int]:
        found = self.line_of(row_id)
        return [] if found is None else [self.number_of(*found)]

    def line_of(
        self, doc_id: str, source: str | None = None, shards: Sequence[str] | None = None
    ) -> tuple[str, int] | None:
        """(shard, row in it) of a Document; None where there is none.

        Args:
            source, shards: of which, and where to look; any, and everywhere, where it is None.
        """
        for shard in self.files if shards is None else shards:
            for row, one in enumerate(read_structs(self.artifact.path(shard), _id_decoder)):
                if one.doc_id == doc_id and source in (None, one.source):
                    return shard, row
        return None

    def origin(self, part: Part) -> Line | Source:
        document: Document = part.record
        meta, listing = document.meta, self.listing(part.source)
        rows = tuple(listing.row(meta.source_file, row) for row in _rows_of(meta, _has_answers(listing.corpus)))
        digest = listing.entry(meta.source_file)["digest"]
        return Source(meta.source_file, rows, digest, document.license_tag, meta.license_evidence)

    def missing(self, row_id: str) -> tuple[str, str]:
        fix = "`corpusmill trace --source` tells what became of a source row"
        return f"no document has doc_id {row_id!r}", fix


class SourceRows(DocumentRows):
    """Documents that were read from files: a snapshot, a normalised source."""

    reads_sources = True

    def find_source(self, file: str, source_row: int) -> tuple[int, bool] | None:
        """Of a file of text, a row is all from the beginning of a document on."""
        around, has_answers, is_text = None, _has_answers(self.artifact), format_of(file) == "text"
        for number, one in enumerate(self._read(_placed_decoder)):
            if one.meta.source_file == file:
                if source_row in _rows_of(one.meta, has_answers):
                    return number, one.meta.source_row != source_row
                if is_text and one.meta.source_row < source_row:
                    around = number, False
        return around


def read_document(corpus: Artifact, shard: str, row: int) -> Document:
    """The Document in a line of a shard, from 0.

    Raises:
        InputError: the shard is shorter, or the line is no Document.
    """
    path, first_row = corpus.path(shard), 0
    for block in read_line_blocks(path):
        rows = block.count(b"\n")
        if row < first_row + rows:
            try:
                return DOCUMENT_DECODER.decode(block.split(b"\n", row - first_row + 1)[row - first_row])
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise InputError(f"row {row} is no Document ({error})", path, "verify the snapshot") from None
        first_row += rows
    raise InputError(f"it has {first_row:,} rows, none is row {row:,}", path, "run `corpusmill verify` on its folder")


def _has_answers(corpus: Artifact) -> bool:
    return corpus.manifest.identity.recipe.get("kind") == _THREADS


def _rows_of(meta: Meta, has_answers: bool) -> list[int]:
    """The rows of its file that a Document came from: its own, and those of a thread's answers."""
    answers = msgspec.json.decode(meta.extra, type=_Thread).answers if has_answers else []
    return [meta.source_row, *(answer.source_row for answer in answers)]
