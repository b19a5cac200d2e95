"""Rows of a Megatron split: sequences, each the tokens of one Document of a snapshot.

To prove a split, the text of documents is encoded again: the split must have these very ids where its index and its
table of documents say, and must lack none. Memory of a proof: of each shard in hand, its rows of the table and one
block of its lines.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

import msgspec
import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.document import DocumentText
from pipeline_assets.corpus.formats.compression import read_structs
from pipeline_assets.corpus.formats.memmap import IndexedDataset, read_indexed_dataset, read_sequences
from pipeline_assets.corpus.formats.parquet import find_in_file, open_parquet, row_of_file
from pipeline_assets.corpus.megatron_split import DOCUMENTS, DOCUMENTS_SCHEMA, INDEX, TOKENS
from pipeline_assets.corpus.rows.documents import DocumentRows
from pipeline_assets.corpus.rows.store import Content, Fate, Labels, Line, Part, Row, RowStore, Seen, ids_of, reason_of
from pipeline_assets.corpus.sampling import selected_shards, split_rule
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.tokens.o200k_harmony import Encoder, load_encoder

_BATCH_ROWS = 65_536
_FIX = "run `corpusmill verify` on the split"
_decoder = msgspec.json.Decoder(DocumentText)


class SplitRows(RowStore):
    """The sequences of one split; the index and the tokens are mapped."""

    labels = Labels("split", "splits", "sequence")
    holds_tokens = True
    how_proven = "encoded again"

    @cached_property
    def dataset(self) -> IndexedDataset:
        return read_indexed_dataset(self.artifact.folder / Path(TOKENS).stem)

    @cached_property
    def tokenizer(self) -> Encoder:
        """tiktoken, even where another library encoded the split."""
        tokenizer = self.artifact.manifest.identity.tokenizer or {}
        return load_encoder(str(tokenizer.get("sha256")), driver="tiktoken")

    def __len__(self) -> int:
        return len(self.dataset.lengths)

    def __iter__(self) -> Iterator[Content]:
        """Equal token runs are equal texts, since decoding is a function."""
        first_row = 0
        with open_parquet(self.artifact.path(DOCUMENTS)) as file:
            for batch in file.iter_batches(_BATCH_ROWS, columns=["doc_id"]):
                for number, doc_id in enumerate(batch.column(0).to_pylist(), first_row):
                    yield Content(doc_id, self.dataset.document(number).tobytes())
                first_row += batch.num_rows

    def at(self, number: int) -> Row:
        self.check_range("row", number, len(self))
        said = row_of_file(self.artifact.path(DOCUMENTS), number, ["doc_id", "source_shard", "row"])
        first = self._first_token(number)
        ids = self.dataset.tokens[first : first + int(self.dataset.lengths[number])]
        try:
            text = self.tokenizer.decode(ids)
        except KeyError as error:
            what, fix = f"{error} is no id of the vocabulary", "run `corpusmill verify`, then rebuild it"
            raise InputError(what, self.artifact.folder, fix) from None
        part = Part(said["doc_id"], "", said["source_shard"], said["row"], text, tokens=len(ids))
        return Row(number, (part,), first, ids)

    def _first_token(self, number: int) -> int:
        return int(self.dataset.pointers[number]) // self.dataset.tokens.itemsize

    def find(self, row_id: str) -> list[int]:
        found = find_in_file(self.artifact.path(DOCUMENTS), {"doc_id": row_id})
        return [] if found is None else [found]

    def row_of_token(self, position: int) -> int:
        self.check_range("token", position, len(self.dataset.tokens))
        starts = self.dataset.pointers // self.dataset.tokens.itemsize
        return int(np.searchsorted(starts, position, side="right")) - 1

    @cached_property
    def _selection(self) -> Artifact:
        """The text manifest. Raises InputError where it is gone."""
        return self.lineage.locate(self.artifact.manifest.identity.inputs[0]["digest"])

    @cached_property
    def _snapshot(self) -> DocumentRows:
        """What the text manifest chose from. Raises InputError where it, or the text manifest, is gone."""
        return DocumentRows(self.lineage.locate(self._selection.manifest.identity.inputs[0]["digest"]), self.lineage)

    def origin(self, part: Part) -> Line:
        return self._snapshot.line(part)

    def fate(self, part: Part) -> Fate | None:
        identity = self.artifact.manifest.identity
        selection = self._selection.manifest
        if part.shard not in {shard.path for shard in selected_shards(selection)}:
            return Fate(self.artifact, "not_selected", f"{selection.name} leaves out {part.shard}")
        belongs_to = split_rule(identity.recipe["valid_fraction"])(part.id)
        if belongs_to != identity.recipe["split"]:
            return Fate(self.artifact, "other_split", f"it belongs to {belongs_to}")
        reject = self.reject_of(part.shard, part.shard_row)
        if reject is not None:
            return Fate(self.artifact, "rejected", reason_of(reject))
        place_of = {"source_shard": part.shard, "row": part.shard_row}
        number = find_in_file(self.artifact.path(DOCUMENTS), place_of)
        if number is None:
            budget = identity.decisions["token_budget"]
            return Fate(self.artifact, "over_budget", f"it lies behind the cut at {budget:,} tokens")
        first = self._first_token(number)
        last = first + int(self.dataset.lengths[number]) - 1
        place = {"sequence": number, "first_token": first, "last_token": last}
        return Fate(self.artifact, "in_split", place=place, row=number)

    def missing(self, row_id: str) -> tuple[str, str]:
        fix = "it may be in another split; `corpusmill trace --source` tells what became of a source row"
        return f"no document has doc_id {row_id!r}", fix

    def proof_files(self) -> dict[str, Sequence[Path]]:
        """Of the shards that it was made from; those behind its cut were never read."""
        own = [self.artifact.folder / name for name in (TOKENS, INDEX, DOCUMENTS)]
        corpus = self._snapshot.artifact.folder
        self.tokenizer.oracle  # noqa: B018, its vocabulary is loaded before there are threads that would each load it
        return {shard: [corpus / shard, *own] for shard in self._shards_read}

    @cached_property
    def _shards_read(self) -> list[str]:
        """In manifest order."""
        unread = set(self.artifact.manifest.identity.decisions["unread_shards"])
        return [file.path for file in selected_shards(self._selection.manifest) if file.path not in unread]

    def prove(self, shard: str, draws: Callable[[str], bool]) -> Iterator[Seen | str]:
        sequences = _sequences_of(self.artifact, shard)
        last = max(sequences, default=-1)
        missing: dict[int, str] = {}
        with open(self.artifact.folder / TOKENS, "rb", buffering=0) as tokens:
            for row, document in enumerate(read_structs(self._snapshot.artifact.folder / shard, _decoder)):
                if not draws(document.doc_id):
                    continue
                said = sequences.get(row)
                if said is None:
                    missing[row] = document.doc_id
                elif said.doc_id != document.doc_id:
                    yield f"{DOCUMENTS} has {said.doc_id!r} from row {row} of {shard}, where {document.doc_id!r} is"
                else:
                    del sequences[row]
                    yield said.contradiction(ids_of(self.tokenizer, document.text), tokens) or Seen.RIGHT
        yield from self._wrongly_missing(shard, missing, last)
        for row, said in sequences.items():
            if draws(said.doc_id):
                yield f"{DOCUMENTS} has {said.doc_id!r} from row {row} of {shard}, which has no such row"

    def _wrongly_missing(self, shard: str, missing: Mapping[int, str], last: int) -> Iterator[str]:
        """Complaints of missing documents of the split: not the other's, not rejected, not behind the cut, which comes
        after the last row.
        """
        identity = self.artifact.manifest.identity
        split_of = split_rule(identity.recipe["valid_fraction"])
        is_cut = shard == self._shards_read[-1] and identity.ledger.dropped.get("over_budget", 0) > 0
        own = {row: doc_id for row, doc_id in missing.items() if split_of(doc_id) == identity.recipe["split"]}
        rejected = {reject.row for reject in self.rejects() if reject.file == shard} if own else set()
        for row, doc_id in own.items():
            if row not in rejected and not (is_cut and row > last):
                yield f"{DOCUMENTS} lacks {doc_id!r}, row {row} of {shard}"


@dataclass(frozen=True)
class _Sequence:
    """What a split says of one document: in its table id and tokens, in its index how many tokens, and from which byte
    on.
    """

    doc_id: str
    tokens: int
    length: int
    pointer: int

    def contradiction(self, ids: NDArray[np.int32], tokens: BinaryIO) -> str | None:
        """What the split says otherwise of a document with these ids; None if nothing."""
        if not self.tokens == self.length == len(ids):
            words = f"{DOCUMENTS} says {self.tokens:,} tokens, {INDEX} {self.length:,}, its text has {len(ids):,}"
            return f"document {self.doc_id!r}: {words}"
        tokens.seek(self.pointer)
        found = np.frombuffer(tokens.read(4 * self.length), "<i4")
        if np.array_equal(found, ids):
            return None
        if len(found) < self.length:
            return f"document {self.doc_id!r}: {TOKENS} ends before it does"
        place = int(np.flatnonzero(found != ids)[0])
        words = f"token {place:,} of it is {found[place]} in {TOKENS}, its text has {ids[place]}"
        return f"document {self.doc_id!r}: {words}"


def _sequences_of(split: Artifact, shard: str) -> dict[int, _Sequence]:
    """What a split has from a shard of the snapshot, by row in the shard; nothing where all its documents are the other
    split's. Row groups of the table without any are not read. Raises InputError where the rows of the shard don't lie
    together, or the index contradicts itself.
    """
    documents, index = split.folder / DOCUMENTS, split.folder / INDEX
    numbers: list[int] = []
    said: list[tuple[int, str, int]] = []
    group_first = 0
    with open_parquet(documents) as table:
        if not table.schema_arrow.equals(DOCUMENTS_SCHEMA):
            raise InputError("it has other columns than a table of documents", documents, _FIX)
        column = table.schema_arrow.get_field_index("source_shard")
        for group in range(table.num_row_groups):
            metadata = table.metadata.row_group(group)
            bounds = metadata.column(column).statistics
            if bounds is None or not bounds.has_min_max or bounds.min <= shard <= bounds.max:
                rows = table.read_row_group(group).to_pydict()
                for number, source in enumerate(rows["source_shard"]):
                    if source == shard:
                        numbers.append(group_first + number)
                        said.append((rows["row"][number], rows["doc_id"][number], rows["tokens"][number]))
            group_first += metadata.num_rows
    first = numbers[0] if numbers else 0
    if numbers != list(range(first, first + len({row for row, _, _ in said}))):
        raise InputError(f"the rows of {shard} are not one after the other", documents, _FIX)
    lengths, pointers = read_sequences(index, first, len(numbers))
    if (np.diff(pointers) != lengths[:-1].astype(np.int64) * 4).any():
        raise InputError(f"lengths and pointers contradict each other in {shard}", index, _FIX)
    return {
        row: _Sequence(doc_id, tokens, int(length), int(pointer))
        for (row, doc_id, tokens), length, pointer in zip(said, lengths, pointers, strict=True)
    }
