"""Sequences of a Megatron split: found by token, by document, and read from tokens.bin."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.formats.megatron import IndexedDataset, read_indexed_dataset
from pipeline_assets.corpus.formats.parquet import open_parquet
from pipeline_assets.corpus.megatron_split import DOCUMENTS, SPLIT_STAGE, TOKENS
from pipeline_assets.corpus.spine.artifact import Artifact, open_artifact
from pipeline_assets.corpus.spine.errors import InputError, UsageError
from pipeline_assets.corpus.tokens.o200k_harmony import Encoder, load_encoder
from pipeline_assets.corpus.trace.snapshot_rows import check_range


@dataclass(frozen=True)
class SplitSequence:
    """Tokens of one sequence, mapped, and its row of documents.parquet."""

    number: int
    first_token: int
    ids: NDArray[Any]
    doc_id: str
    shard: str
    shard_row: int


def open_split(folder: Path) -> Artifact:
    """A sealed Megatron split.

    Raises:
        UsageError: another artifact (of a dataset of splits, names them).
        InputError: nothing sealed there.
    """
    artifact = open_artifact(folder)
    if artifact.manifest.identity.stage.name == SPLIT_STAGE.name:
        return artifact
    members = [str(folder / entry["member"]) for entry in artifact.manifest.identity.inputs if "member" in entry]
    if members:
        raise UsageError("this is a dataset of splits", folder, f"give one of {', '.join(members)}")
    fix = "give the folder of a split, such as megatron/<name>/train, or of a corpus of documents"
    raise UsageError(f"this is {artifact.manifest.kind}, no Megatron split", folder, fix)


def token_file(split: Artifact) -> IndexedDataset:
    """Its tokens and index, mapped."""
    return read_indexed_dataset(split.folder / Path(TOKENS).stem)


def tokenizer_of(split: Artifact) -> Encoder:
    """The tokenizer that the split is pinned to; tiktoken, since nothing is encoded here."""
    tokenizer = split.manifest.identity.tokenizer or {}
    return load_encoder(str(tokenizer.get("sha256")), driver="tiktoken")


def decode_ids(encoder: Encoder, ids: NDArray[Any], split: Artifact) -> str:
    """Text of token ids, special tokens by their names.

    Raises:
        InputError: an id is outside the vocabulary.
    """
    try:
        return encoder.decode(ids)
    except KeyError as error:
        raise InputError(
            f"{error} is no id of the vocabulary", split.folder, "run `corpusmill verify`, then rebuild it"
        ) from None


def sequence_of_token(split: Artifact, dataset: IndexedDataset, position: int) -> int:
    """The sequence that a token of tokens.bin belongs to.

    Raises:
        UsageError: out of range (says which).
    """
    check_range("token", position, len(dataset.tokens), split.folder)
    return int(np.searchsorted(dataset.pointers // dataset.tokens.itemsize, position, side="right")) - 1


def sequence_of_doc_id(split: Artifact, doc_id: str) -> int:
    """The sequence of a document.

    Raises:
        UsageError: the split has no such document.
    """
    found = _find_row(split, ["doc_id"], lambda batch: _places(batch, "doc_id", doc_id))
    if found is None:
        fix = "it may be in another split; `corpusmill trace --source` tells what became of a source row"
        raise UsageError(f"no document has doc_id {doc_id!r}", split.folder, fix)
    return found


def sequence_of_line(split: Artifact, shard: str, row: int) -> int | None:
    """The sequence made from a line of a snapshot's shard; None where the split has none."""
    return _find_row(
        split,
        ["source_shard", "row"],
        lambda batch: np.intersect1d(_places(batch, "row", row), _places(batch, "source_shard", shard)),
    )


def read_sequence(split: Artifact, dataset: IndexedDataset, number: int) -> SplitSequence:
    """One sequence and where its text lies.

    Raises:
        UsageError: out of range (says which).
    """
    check_range("row", number, len(dataset.lengths), split.folder)
    start = int(dataset.pointers[number]) // dataset.tokens.itemsize
    ids = dataset.tokens[start : start + int(dataset.lengths[number])]
    first_row = 0
    with open_parquet(split.path(DOCUMENTS)) as documents:
        for group in range(documents.num_row_groups):
            rows = documents.metadata.row_group(group).num_rows
            if number < first_row + rows:
                table = documents.read_row_group(group, columns=["doc_id", "source_shard", "row"])
                [row] = table.slice(number - first_row, 1).to_pylist()
                return SplitSequence(number, start, ids, row["doc_id"], row["source_shard"], row["row"])
            first_row += rows
    raise InputError(f"{DOCUMENTS} has {first_row:,} rows, the index more", split.folder, "run `corpusmill verify`")


def _find_row(split: Artifact, columns: list[str], matches: Callable[[Any], NDArray[np.int64]]) -> int | None:
    """The first row of documents.parquet that matches, None if none does; only these columns are read, in batches."""
    first_row = 0
    with open_parquet(split.path(DOCUMENTS)) as documents:
        for batch in documents.iter_batches(columns=columns):
            found = matches(batch)
            if len(found):
                return first_row + int(found[0])
            first_row += batch.num_rows
    return None


def _places(batch: Any, column: str, value: object) -> NDArray[np.int64]:
    return np.flatnonzero(batch.column(column).to_numpy(zero_copy_only=False) == value)
