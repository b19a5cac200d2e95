"""One row of an artifact as a reader gets it: a sequence of a split, or a Document of a snapshot."""

from dataclasses import dataclass
from pathlib import Path

from pipeline_assets.corpus.document_shards.publish import shard_rows
from pipeline_assets.corpus.snapshot.take import SNAPSHOT_STAGE
from pipeline_assets.corpus.spine.artifact import Artifact, open_artifact
from pipeline_assets.corpus.spine.errors import UsageError
from pipeline_assets.corpus.trace.snapshot_rows import read_document
from pipeline_assets.corpus.trace.split_sequences import (
    check_range,
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
        row: sequence of a split, or Document of a snapshot, counted over its shards in manifest order.
        text: of a sequence, decoded from its ids, special tokens by their names; else the Document's own.
        tokens, first_token: None where the artifact holds no tokens.
    """

    folder: Path
    row: int
    doc_id: str
    shard: str
    shard_row: int
    tokens: int | None
    first_token: int | None
    text: str


def peek(folder: Path, row: int | None = None, token: int | None = None) -> Peek:
    """One sequence of a split, by its row or by one of its tokens, or one Document of a snapshot; the first by default.

    Raises:
        UsageError: out of range, a token of what has none, or a folder that is neither.
        InputError: nothing sealed there, or a file damaged.
    """
    artifact = open_artifact(folder)
    if artifact.manifest.identity.stage.name == SNAPSHOT_STAGE.name:
        if token is not None:
            raise UsageError("a snapshot has documents, no tokens", folder, "give --row")
        return _peek_document(artifact, row or 0)
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


def _peek_document(snapshot: Artifact, row: int) -> Peek:
    shards = shard_rows(snapshot)
    check_range("row", row, sum(shards.values()), snapshot.folder)
    shard_row = row
    for shard, rows in shards.items():
        if shard_row < rows:
            document = read_document(snapshot.path(shard), shard_row)
            return Peek(snapshot.folder, row, document.doc_id, shard, shard_row, None, None, document.text)
        shard_row -= rows
    raise AssertionError("the range was checked")
