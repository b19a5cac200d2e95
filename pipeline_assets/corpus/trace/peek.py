"""One row of an artifact as a reader gets it: a sequence of a split, a row of a packed set, a Document of a corpus."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline_assets.corpus.document_shards import holds_documents
from pipeline_assets.corpus.formats.memmap import open_packed
from pipeline_assets.corpus.spine.artifact import Artifact, open_artifact
from pipeline_assets.corpus.spine.errors import UsageError
from pipeline_assets.corpus.spine.lineage import root_of
from pipeline_assets.corpus.trace.conversation_to_source import holds_conversations, read_conversation
from pipeline_assets.corpus.trace.packed_to_source import tokenizer_of_set
from pipeline_assets.corpus.trace.snapshot_rows import check_range, line_of_row, read_document
from pipeline_assets.corpus.trace.split_sequences import (
    decode_ids,
    open_split,
    read_sequence,
    sequence_of_token,
    token_file,
    tokenizer_of,
)


@dataclass(frozen=True)
class Peek:
    """One row of an artifact as a reader gets it.

    Attributes:
        row: sequence of a split, or Document of a corpus, counted over its shards in manifest order.
        text: of a sequence, decoded from its ids, special tokens by their names; else the Document's own.
        tokens: of the row; None where nobody counted them.
        first_token: None where the artifact holds no tokens.
    """

    folder: Path
    row: int
    doc_id: str
    shard: str
    shard_row: int
    tokens: int | None
    first_token: int | None
    text: str


@dataclass(frozen=True)
class PeekedSegment:
    """A segment of a row: `tokens` of its document from token `start` on, and their text."""

    source: str
    doc_id: str
    start: int
    tokens: int
    text: str


@dataclass(frozen=True)
class PeekedRow:
    """One row of a packed set: its segments, one after the other, and then so much padding."""

    folder: Path
    row: int
    segments: Sequence[PeekedSegment]
    padding: int


def peek(folder: Path, row: int | None = None, token: int | None = None) -> Peek:
    """One sequence of a split, by its row or by one of its tokens, one Document of a corpus, or one normalised row; the
    first by default.

    Raises:
        UsageError: out of range, a token of what has none, or a folder that is neither.
        InputError: nothing sealed there, or a file damaged.
    """
    artifact = open_artifact(folder)
    if holds_documents(artifact):
        if token is not None:
            raise UsageError("it has documents, no tokens", folder, "give --row")
        return _peek_document(artifact, row or 0)
    if holds_conversations(artifact):
        if token is not None:
            raise UsageError("it has texts, no tokens", folder, "give --row")
        return _peek_conversation(artifact, row or 0)
    split = open_split(folder)
    dataset = token_file(split)
    number = (row or 0) if token is None else sequence_of_token(split, dataset, token)
    sequence = read_sequence(split, dataset, number)
    return Peek(
        folder=folder,
        row=number,
        doc_id=sequence.doc_id,
        shard=sequence.shard,
        shard_row=sequence.shard_row,
        tokens=len(sequence.ids),
        first_token=sequence.first_token,
        text=decode_ids(tokenizer_of(split), sequence.ids, split),
    )


def peek_packed(folder: Path, row: int | None = None, token: int | None = None) -> PeekedRow:
    """One row of a packed set, by its number or by one of its tokens; the first by default.

    Raises:
        UsageError: out of range.
        InputError: a file is damaged, or that of the tokenizer is gone.
    """
    artifact = open_artifact(folder)
    packed = open_packed(folder, artifact.manifest.digest)
    if token is not None:
        check_range("token", token, packed.input_ids.size, folder)
        row = token // packed.meta.seq_len
    row = row or 0
    check_range("row", row, len(packed), folder)
    tokenizer = tokenizer_of_set(artifact, packed, root_of(folder.absolute()))
    segments = [
        PeekedSegment(
            segment.source,
            segment.doc_id,
            segment.start,
            segment.length,
            tokenizer.decode(packed[row][first : first + segment.length]),
        )
        for segment, first in zip(packed.segments(row), packed.boundaries(row)[:, 0], strict=True)
    ]
    return PeekedRow(folder, row, segments, packed.meta.seq_len - sum(segment.tokens for segment in segments))


def _peek_conversation(rows: Artifact, row: int) -> Peek:
    found = read_conversation(rows, row, ["id", "text", "stats_tokens"])
    id, text, tokens = found.columns["id"], found.columns["text"], found.columns["stats_tokens"]
    return Peek(rows.folder, row, id, found.shard, found.shard_row, tokens, None, text)


def _peek_document(corpus: Artifact, row: int) -> Peek:
    shard, shard_row = line_of_row(corpus, row)
    document = read_document(corpus.path(shard), shard_row)
    return Peek(corpus.folder, row, document.doc_id, shard, shard_row, None, None, document.text)
