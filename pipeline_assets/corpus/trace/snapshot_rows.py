"""Rows of a snapshot: its Documents, where each came from, and its rejects."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from pipeline_assets.corpus.document import Document
from pipeline_assets.corpus.document_shards.publish import shard_rows
from pipeline_assets.corpus.formats.jsonl_zst import read_line_blocks
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.rejects import Reject


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


class _DocumentOrigin(msgspec.Struct):
    doc_id: str
    meta: Origin


_document_decoder = msgspec.json.Decoder(Document)
_origin_decoder = msgspec.json.Decoder(_DocumentOrigin)
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
            except msgspec.DecodeError as error:
                raise InputError(f"row {row} is no Document ({error})", shard, "verify the snapshot") from None
        first_row += rows
    raise InputError(f"it has {first_row:,} rows, none is row {row:,}", shard, "run `corpusmill verify` on its folder")


def documents_of(snapshot: Artifact, path: str) -> Iterator[tuple[DocumentLine, int]]:
    """Every document made from a hub file, with its source row, in manifest order."""
    for shard in shard_rows(snapshot):
        first_row = 0
        for block in read_line_blocks(snapshot.path(shard)):
            origins = _origin_decoder.decode_lines(block)
            for row, origin in enumerate(origins, first_row):
                if origin.meta.source_file == path:
                    yield DocumentLine(shard, row, origin.doc_id), origin.meta.source_row
            first_row += len(origins)


def rejects_of(rejects: Path, file: str) -> Iterator[Reject]:
    """Rejects of one input file, in order."""
    for block in read_line_blocks(rejects):
        yield from (reject for reject in _reject_decoder.decode_lines(block) if reject.file == file)
