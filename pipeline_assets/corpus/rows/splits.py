"""Rows of a Megatron split: sequences, each the tokens of one Document of a snapshot."""

from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.formats.megatron import IndexedDataset, read_indexed_dataset
from pipeline_assets.corpus.formats.parquet import open_parquet
from pipeline_assets.corpus.megatron_split import DOCUMENTS, REJECTS, TOKENS
from pipeline_assets.corpus.rows.documents import DocumentRows
from pipeline_assets.corpus.rows.store import (
    Content,
    Fate,
    Labels,
    Line,
    Part,
    Row,
    RowStore,
    check_range,
    read_rejects,
    reason_of,
    reject_at,
)
from pipeline_assets.corpus.sampling.split import split_rule
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.text_selection import selected_shards
from pipeline_assets.corpus.tokens.o200k_harmony import Encoder, load_encoder

if TYPE_CHECKING:
    from pipeline_assets.corpus.trust.proof import Prover

_BATCH_ROWS = 65_536


class SplitRows(RowStore):
    """The sequences of one split; the index and the tokens are mapped."""

    labels = Labels("split", "splits", "sequence")
    holds_tokens = True

    @cached_property
    def dataset(self) -> IndexedDataset:
        return read_indexed_dataset(self.artifact.folder / Path(TOKENS).stem)

    @cached_property
    def tokenizer(self) -> Encoder:
        """tiktoken: what is decoded needs no other."""
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
        check_range("row", number, len(self), self.artifact.folder)
        said, ids = self._said(number), self._ids(number)
        try:
            text = self.tokenizer.decode(ids)
        except KeyError as error:
            what, fix = f"{error} is no id of the vocabulary", "run `corpusmill verify`, then rebuild it"
            raise InputError(what, self.artifact.folder, fix) from None
        part = Part(said["doc_id"], "", said["source_shard"], said["row"], text, tokens=len(ids))
        return Row(number, (part,), self._first_token(number), ids)

    def _first_token(self, number: int) -> int:
        return int(self.dataset.pointers[number]) // self.dataset.tokens.itemsize

    def _ids(self, number: int) -> NDArray[Any]:
        first = self._first_token(number)
        ids: NDArray[Any] = self.dataset.tokens[first : first + int(self.dataset.lengths[number])]
        return ids

    def _said(self, number: int) -> dict[str, Any]:
        """Its row of documents.parquet."""
        first_row = 0
        with open_parquet(self.artifact.path(DOCUMENTS)) as documents:
            for group in range(documents.num_row_groups):
                rows = documents.metadata.row_group(group).num_rows
                if number < first_row + rows:
                    table = documents.read_row_group(group, columns=["doc_id", "source_shard", "row"])
                    [row] = table.slice(number - first_row, 1).to_pylist()
                    return dict(row)
                first_row += rows
        what = f"{DOCUMENTS} has {first_row:,} rows, the index more"
        raise InputError(what, self.artifact.folder, "run `corpusmill verify`")

    def find(self, row_id: str) -> list[int]:
        found = self._find_row(["doc_id"], lambda batch: _places(batch, "doc_id", row_id))
        return [] if found is None else [found]

    def row_of_token(self, position: int) -> int:
        check_range("token", position, len(self.dataset.tokens), self.artifact.folder)
        starts = self.dataset.pointers // self.dataset.tokens.itemsize
        return int(np.searchsorted(starts, position, side="right")) - 1

    @cached_property
    def _snapshot(self) -> DocumentRows:
        """What the text manifest chose from.

        Raises:
            InputError: it, or the text manifest, is gone.
        """
        selection = self.lineage.locate(self.artifact.manifest.identity.inputs[0]["digest"])
        return DocumentRows(self.lineage.locate(selection.manifest.identity.inputs[0]["digest"]), self.lineage)

    def origin(self, part: Part) -> Line:
        return self._snapshot.line(part)

    def prover(self) -> "Prover":
        from pipeline_assets.corpus.trust.split_proof import SplitProver

        selection = self.lineage.locate(self.artifact.manifest.identity.inputs[0]["digest"])
        return SplitProver.of(self.artifact, selection, self._snapshot.artifact)

    def fate(self, line: Line, part: Part) -> Fate | None:
        identity = self.artifact.manifest.identity
        selection = self.lineage.locate(identity.inputs[0]["digest"])
        if part.shard not in {shard.path for shard in selected_shards(selection.manifest)}:
            return Fate(self.artifact, "not_selected", f"{selection.manifest.name} leaves out {part.shard}")
        belongs_to = split_rule(identity.recipe["valid_fraction"])(part.id)
        if belongs_to != identity.recipe["split"]:
            return Fate(self.artifact, "other_split", f"it belongs to {belongs_to}")
        reject = reject_at(read_rejects(self.artifact.path(REJECTS)), part.shard, part.shard_row)
        if reject is not None:
            return Fate(self.artifact, "rejected", reason_of(reject))
        number = self._find_row(
            ["source_shard", "row"],
            lambda batch: np.intersect1d(
                _places(batch, "row", part.shard_row), _places(batch, "source_shard", part.shard)
            ),
        )
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

    def _find_row(self, columns: list[str], matches: Callable[[Any], NDArray[np.int64]]) -> int | None:
        """The first row of documents.parquet that matches; only these columns are read, in batches."""
        first_row = 0
        with open_parquet(self.artifact.path(DOCUMENTS)) as documents:
            for batch in documents.iter_batches(columns=columns):
                found = matches(batch)
                if len(found):
                    return first_row + int(found[0])
                first_row += batch.num_rows
        return None


def _places(batch: Any, column: str, value: object) -> NDArray[np.int64]:
    return np.flatnonzero(batch.column(column).to_numpy(zero_copy_only=False) == value)
