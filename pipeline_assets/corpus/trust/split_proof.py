"""Proof of a Megatron split: the text of documents is encoded again, and the split must have these very ids where its
index and its table of documents say, and must lack none.

Memory: of each shard in hand, its rows of the table and one block of its lines.
"""

import functools
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, ClassVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.document import DocumentText
from pipeline_assets.corpus.formats.megatron import read_sequences
from pipeline_assets.corpus.formats.parquet import open_parquet
from pipeline_assets.corpus.megatron_split import DOCUMENTS, DOCUMENTS_SCHEMA, INDEX, REJECTS, TOKENS
from pipeline_assets.corpus.rows.store import read_rejects
from pipeline_assets.corpus.sampling.split import split_rule
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.text_selection import selected_shards
from pipeline_assets.corpus.tokens.o200k_harmony import END_OF_TEXT, Encoder, load_encoder
from pipeline_assets.corpus.trust.proof import ShardProof, drawn_documents
from pipeline_assets.corpus.trust.result import Sample

_FIX = "run `corpusmill verify` on the split"
_decoder = msgspec.json.Decoder(DocumentText)


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


@dataclass(frozen=True)
class SplitProver:
    """Proves documents of one split. Ids are tiktoken's, even where another library encoded the split.

    Attributes:
        corpus: the snapshot that the text lies in.
        shards: those of the snapshot that the split was made from, in manifest order.
    """

    how: ClassVar[str] = "encoded again"
    artifact: Artifact
    corpus: Artifact
    shards: Sequence[str]
    encoder: Encoder

    @classmethod
    def of(cls, split: Artifact, selection: Artifact, corpus: Artifact) -> "SplitProver":
        """Of a split and what it was made from; shards behind its cut were never read.

        Raises:
            InputError: this program has another vocabulary than the split was made with.
        """
        unread = set(split.manifest.identity.decisions["unread_shards"])
        read = [file.path for file in selected_shards(selection.manifest) if file.path not in unread]
        return cls(split, corpus, read, _oracle(str((split.manifest.identity.tokenizer or {}).get("sha256"))))

    def files(self, shard: str) -> list[Path]:
        return [self.corpus.folder / shard, *(self.artifact.folder / name for name in (TOKENS, INDEX, DOCUMENTS))]

    def prove(self, proof: ShardProof, within: Sample, stop: threading.Event) -> None:
        sequences = sequences_of(self.artifact, proof.shard)
        missing: dict[int, str] = {}
        with open(self.artifact.folder / TOKENS, "rb", buffering=0) as tokens:
            for drawn in drawn_documents(_decoder, self.corpus.folder / proof.shard, within, stop):
                there = [(row, document) for row, document in drawn if row in sequences.rows]
                missing |= {row: document.doc_id for row, document in drawn if row not in sequences.rows}
                runs = self.encoder.encode([document.text for _, document in there]).closed_by(END_OF_TEXT)
                ends = np.cumsum(runs.lengths, dtype=np.int64)
                for (row, document), length, end in zip(there, runs.lengths, ends, strict=True):
                    what = sequences.contradiction(row, document.doc_id, runs.ids[end - length : end], tokens)
                    if what is None:
                        proof.documents += 1
                    else:
                        proof.complain(what)
        for what in self._wrongly_missing(proof.shard, missing, sequences):
            proof.complain(what)
        for what in sequences.unseen(within):
            proof.complain(what)

    def _wrongly_missing(self, shard: str, missing: Mapping[int, str], sequences: ShardSequences) -> Iterator[str]:
        """Complaints of missing documents of the split: not the other's, not rejected, not behind the cut."""
        identity = self.artifact.manifest.identity
        split_of = split_rule(identity.recipe["valid_fraction"])
        is_cut = shard == self.shards[-1] and identity.ledger.dropped.get("over_budget", 0) > 0
        last = max(sequences.rows, default=-1)
        rejected: set[int] | None = None
        for row, doc_id in missing.items():
            if split_of(doc_id) != identity.recipe["split"] or (is_cut and row > last):
                continue
            if rejected is None:
                rejects = read_rejects(self.artifact.folder / REJECTS)
                rejected = {reject.row for reject in rejects if reject.file == shard}
            if row not in rejected:
                yield f"{DOCUMENTS} lacks {doc_id!r}, row {row} of {shard}"


@functools.lru_cache(maxsize=1)
def _oracle(tokenizer_sha256: str) -> Encoder:
    """tiktoken, its vocabulary loaded before there are threads that would each load it."""
    encoder = load_encoder(tokenizer_sha256, driver="tiktoken")
    encoder.encode([""])
    return encoder
