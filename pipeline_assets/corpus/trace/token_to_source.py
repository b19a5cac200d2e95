"""From a token of a Megatron split to the row of the hub file that it came from.

Memory: an index of 20 bytes a sequence, and one block of a shard; tokens are mapped.
"""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from pipeline_assets.corpus.formats.megatron import IndexedDataset
from pipeline_assets.corpus.snapshot.take import SNAPSHOT_STAGE
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.lineage import upstream
from pipeline_assets.corpus.tokens.o200k_harmony import END_OF_TEXT, Encoder
from pipeline_assets.corpus.trace.snapshot_rows import Origin, read_document
from pipeline_assets.corpus.trace.source_row import SourceRow, hub_file
from pipeline_assets.corpus.trace.split_sequences import (
    SplitSequence,
    decode_ids,
    open_split,
    read_sequence,
    sequence_of_token,
    token_file,
    tokenizer_of,
)

_TOKENS_AROUND = 24


@dataclass(frozen=True)
class TokenAt:
    """One token of a split.

    Attributes:
        position: in tokens.bin, from 0.
        number: in its document, from 0.
        byte_offset: where it begins in the UTF-8 of the document's text; the end of text lies behind its last byte.
        text: its own; bytes that are part of a character only are replacement characters.
        hex: its bytes; empty for the end of text, which stands for none.
        before, after: text of the tokens around it, in its document.
    """

    position: int
    number: int
    id: int
    byte_offset: int
    text: str
    hex: str
    is_end_of_text: bool
    before: str
    after: str


@dataclass(frozen=True)
class Trace:
    """A sequence of a split back to its source.

    Attributes:
        sequence: row of documents.parquet; its tokens are first_token to first_token + tokens - 1 of tokens.bin.
        shard, shard_row: the Document's line, from 0, of a file in the snapshot's folder.
        source_digest: of the hub file, as listed at the commit.
        beginning: text of its first tokens.
        token: None where the question was for the whole sequence.
    """

    split: Path
    sequence: int
    first_token: int
    tokens: int
    doc_id: str
    snapshot: Path
    snapshot_digest: str
    shard: str
    shard_row: int
    source: SourceRow
    source_digest: str
    license_tag: str
    beginning: str
    token: TokenAt | None


@dataclass(frozen=True)
class Lineage:
    """A split, opened, with the snapshot that it was made from."""

    split: Artifact
    snapshot: Artifact
    dataset: IndexedDataset
    encoder: Encoder


def open_lineage(folder: Path, root: Path) -> Lineage:
    """A split ready to be traced.

    Args:
        root: the data root below which lies what it was made from.
    Raises:
        UsageError: no split.
        InputError: upstream is gone, or a file damaged.
    """
    split = open_split(folder)
    return Lineage(split, upstream(root, split, SNAPSHOT_STAGE.name), token_file(split), tokenizer_of(split))


def trace_token(lineage: Lineage, position: int) -> Trace:
    """Where one token of tokens.bin came from.

    Raises:
        UsageError: out of range.
        InputError: split and snapshot contradict each other.
    """
    number = sequence_of_token(lineage.split, lineage.dataset, position)
    return _trace(lineage, read_sequence(lineage.split, lineage.dataset, number), position)


def trace_sequence(lineage: Lineage, number: int) -> Trace:
    """Where a sequence, a row of documents.parquet, came from. Errors as `trace_token`."""
    return _trace(lineage, read_sequence(lineage.split, lineage.dataset, number), None)


def _trace(lineage: Lineage, sequence: SplitSequence, position: int | None) -> Trace:
    shard = lineage.snapshot.path(sequence.shard)
    document = read_document(shard, sequence.shard_row)
    if document.doc_id != sequence.doc_id:
        what = f"row {sequence.shard_row} is document {document.doc_id!r}, the split has {sequence.doc_id!r} from it"
        raise InputError(what, shard, "run `corpusmill verify` on the snapshot and on the split")
    token = None if position is None else _token_at(lineage, sequence, document.text, position)
    recipe = lineage.snapshot.manifest.identity.recipe
    origin = msgspec.convert(document.meta, Origin)
    source = SourceRow(recipe["dataset"], recipe["revision"], origin.source_file, origin.source_row)
    return Trace(
        split=lineage.split.folder,
        sequence=sequence.number,
        first_token=sequence.first_token,
        tokens=len(sequence.ids),
        doc_id=sequence.doc_id,
        snapshot=lineage.snapshot.folder,
        snapshot_digest=lineage.snapshot.manifest.digest,
        shard=sequence.shard,
        shard_row=sequence.shard_row,
        source=source,
        source_digest=hub_file(lineage.snapshot, source)["digest"],
        license_tag=document.license_tag,
        beginning=decode_ids(lineage.encoder, sequence.ids[:_TOKENS_AROUND], lineage.split),
        token=token,
    )


def _token_at(lineage: Lineage, sequence: SplitSequence, text: str, position: int) -> TokenAt:
    """
    Raises:
        InputError: the text doesn't have the token at this place.
    """
    number = position - sequence.first_token
    vocabulary, ids = lineage.encoder.oracle, sequence.ids
    decode_ids(lineage.encoder, ids[: number + 1 + _TOKENS_AROUND], lineage.split)  # so that no id below is unknown
    is_end = int(ids[number]) == END_OF_TEXT
    own = b"" if is_end else vocabulary.decode_single_token_bytes(int(ids[number]))
    offset = len(vocabulary.decode_bytes(ids[:number].tolist()))
    rest = text.encode("utf-8")[offset:]
    if not rest.startswith(own) or (is_end and rest):
        what = f"token {position:,} is not at byte {offset:,} of the text of {sequence.doc_id!r}"
        raise InputError(what, lineage.split.folder, "run `corpusmill verify` on the split and on the snapshot")
    return TokenAt(
        position=position,
        number=number,
        id=int(ids[number]),
        byte_offset=offset,
        text=lineage.encoder.decode(ids[number : number + 1]),
        hex=own.hex(),
        is_end_of_text=is_end,
        before=lineage.encoder.decode(ids[max(0, number - _TOKENS_AROUND) : number]),
        after=lineage.encoder.decode(ids[number + 1 : number + 1 + _TOKENS_AROUND]),
    )
