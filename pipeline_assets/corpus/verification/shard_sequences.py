"""What a Megatron split has from one Document shard, by its table of documents and its index."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.formats.megatron import read_sequences
from pipeline_assets.corpus.formats.parquet import open_parquet
from pipeline_assets.corpus.megatron_split import DOCUMENTS, INDEX, TOKENS
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.sample import Sample
from pipeline_assets.corpus.tokens.encode import DOCUMENTS_SCHEMA

_FIX = "run `corpusmill verify` on the split"


@dataclass(frozen=True)
class _Row:
    """A row of the table of documents: its number, which is that of its sequence, and what it says."""

    number: int
    doc_id: str
    tokens: int


@dataclass(frozen=True)
class ShardSequences:
    """What a split has from one shard.

    Attributes:
        rows: by row in the shard.
        lengths, pointers: of the index, from the first of these sequences on.
    """

    shard: str
    rows: dict[int, _Row]
    first: int
    lengths: NDArray[np.int32]
    pointers: NDArray[np.int64]
    seen: set[int] = field(default_factory=set)

    def contradiction(self, row: int, doc_id: str, ids: NDArray[np.int32], tokens: BinaryIO) -> str | None:
        """What the split says otherwise of a document with these ids; None if nothing."""
        said = self.rows[row]
        if said.doc_id != doc_id:
            return f"{DOCUMENTS} has {said.doc_id!r} from row {row} of {self.shard}, where {doc_id!r} is"
        self.seen.add(row)
        length, pointer = int(self.lengths[said.number - self.first]), int(self.pointers[said.number - self.first])
        if not said.tokens == length == len(ids):
            words = f"{DOCUMENTS} says {said.tokens:,} tokens, {INDEX} {length:,}, its text has {len(ids):,}"
            return f"document {doc_id!r}: {words}"
        tokens.seek(pointer)
        found = np.frombuffer(tokens.read(4 * length), "<i4")
        if np.array_equal(found, ids):
            return None
        if len(found) < length:
            return f"document {doc_id!r}: {TOKENS} ends before it does"
        place = int(np.flatnonzero(found != ids)[0])
        return f"document {doc_id!r}: token {place:,} of it is {found[place]} in {TOKENS}, its text has {ids[place]}"

    def unseen(self, within: Sample) -> Iterator[str]:
        """Rows of the table that no document of the shard answered to, of the documents drawn."""
        for row, said in self.rows.items():
            if row not in self.seen and within.draws(said.doc_id):
                yield f"{DOCUMENTS} has {said.doc_id!r} from row {row} of {self.shard}, which has no such row"


def sequences_of(split: Artifact, shard: str) -> ShardSequences:
    """What a split has from a shard of the snapshot; nothing where all its documents are the other split's.

    Raises:
        InputError: the rows of the shard don't lie together, or the index contradicts itself.
    """
    rows: dict[int, _Row] = {}
    numbers = []
    for number, row, doc_id, tokens in _table_rows(split.folder / DOCUMENTS, shard):
        rows[row] = _Row(number, doc_id, tokens)
        numbers.append(number)
    first = numbers[0] if numbers else 0
    if numbers != list(range(first, first + len(rows))):
        raise InputError(f"the rows of {shard} are not one after the other", split.folder / DOCUMENTS, _FIX)
    lengths, pointers = read_sequences(split.folder / INDEX, first, len(rows))
    if (np.diff(pointers) != lengths[:-1].astype(np.int64) * 4).any():
        raise InputError(f"lengths and pointers contradict each other in {shard}", split.folder / INDEX, _FIX)
    return ShardSequences(shard, rows, first, lengths, pointers)


def _table_rows(documents: Path, shard: str) -> Iterator[tuple[int, int, str, int]]:
    """(number, row in the shard, doc_id, tokens) of a shard's rows; row groups without any are not read."""
    first = 0
    with open_parquet(documents) as table:
        if not table.schema_arrow.equals(DOCUMENTS_SCHEMA):
            raise InputError("it has other columns than a table of documents", documents, _FIX)
        column = table.schema_arrow.get_field_index("source_shard")
        for group in range(table.num_row_groups):
            metadata = table.metadata.row_group(group)
            bounds = metadata.column(column).statistics
            if bounds is None or not bounds.has_min_max or bounds.min <= shard <= bounds.max:
                columns = table.read_row_group(group).to_pydict()
                for number, source in enumerate(columns["source_shard"]):
                    if source == shard:
                        row, doc_id = columns["row"][number], columns["doc_id"][number]
                        yield first + number, row, doc_id, columns["tokens"][number]
            first += metadata.num_rows
