"""Rows of a Megatron split, each with the tokens of one Document of a snapshot."""

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import numpy as np

from pipeline_assets.build.rows.documents import DocumentRows
from pipeline_assets.build.rows.row_values import ComparableRow, DisplayNames, Fate, Part, Row, reject_summary
from pipeline_assets.build.rows.store import RowStore, UpstreamRow
from pipeline_assets.corpus.formats.megatron import IndexedDataset, read_indexed_dataset
from pipeline_assets.corpus.formats.parquet import StoredParquet
from pipeline_assets.corpus.formats.parquet_rows import find_row, read_row
from pipeline_assets.corpus.megatron_split import DOCUMENTS_FILE, TOKENS_FILE
from pipeline_assets.corpus.tokens.o200k_harmony import HarmonyEncoder, load_encoder
from pipeline_assets.corpus.training_set import read_selection, split_rule
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.errors import InputError

_BATCH_ROWS = 65_536


class SplitRows(RowStore):
    """Sequences of one split; its tokens are memory-mapped."""

    display_names = DisplayNames("split", "splits", "sequence")
    advice = f"the document may be in another split; {RowStore.advice}"
    holds_tokens = True

    @cached_property
    def dataset(self) -> IndexedDataset:
        return read_indexed_dataset(self.artifact.folder / Path(TOKENS_FILE).stem)

    @cached_property
    def tokenizer(self) -> HarmonyEncoder:
        """Tokenizer of the split, run by tiktoken even if the build used another library."""
        tokenizer = self.artifact.manifest.identity.tokenizer or {}
        return load_encoder(str(tokenizer.get("sha256")), driver="tiktoken")

    def __len__(self) -> int:
        return len(self.dataset.lengths)

    def __iter__(self) -> Iterator[ComparableRow]:
        """Yield the id and tokens of each document; equal tokens mean equal texts."""
        first_row = 0
        with StoredParquet(self.artifact.path(DOCUMENTS_FILE)) as file:
            for batch in file.iter_batches(_BATCH_ROWS, columns=["doc_id"]):
                for number, doc_id in enumerate(batch.column(0).to_pylist(), first_row):
                    yield ComparableRow(doc_id, self.dataset.document(number).tobytes())
                first_row += batch.num_rows

    def row_at(self, row_number: int) -> Row:
        self.check_range("row", row_number, len(self))
        columns = read_row(self.artifact.path(DOCUMENTS_FILE), row_number, ["doc_id", "source_shard", "row"])
        first = self._first_token(row_number)
        ids = self.dataset.tokens[first : first + int(self.dataset.lengths[row_number])]
        try:
            text = self.tokenizer.decode(ids)
        except KeyError as error:
            what, fix = f"token id {error} is not in the vocabulary", "run `corpusmill verify`, then rebuild the split"
            raise InputError(what, self.artifact.folder, fix) from None
        part = Part(columns["doc_id"], "", columns["source_shard"], columns["row"], text, tokens=len(ids))
        return Row(row_number, (part,), first, ids)

    def _first_token(self, row_number: int) -> int:
        # pointers are byte offsets in the token file
        return int(self.dataset.pointers[row_number]) // self.dataset.tokens.itemsize

    def find(self, row_id: str) -> list[int]:
        number = find_row(self.artifact.path(DOCUMENTS_FILE), {"doc_id": row_id})
        return [] if number is None else [number]

    def row_of_token(self, position: int) -> int:
        self.check_range("token", position, len(self.dataset.tokens))
        starts = self.dataset.pointers // self.dataset.tokens.itemsize
        return int(np.searchsorted(starts, position, side="right")) - 1  # the last start <= position

    @cached_property
    def _selection(self) -> Artifact:
        """Upstream artifact that lists the snapshot's shards selected for the split."""
        return self.open_upstream(self.artifact.manifest.identity.inputs[0]["digest"])

    @cached_property
    def _snapshot(self) -> DocumentRows:
        """Documents of the snapshot from which the upstream selection chose shards."""
        digest = self._selection.manifest.identity.inputs[0]["digest"]
        return DocumentRows(self.open_upstream(digest), self.lineage)

    def origin(self, part: Part) -> UpstreamRow:
        return self._snapshot.upstream_row(part)

    def fate(self, part: Part) -> Fate | None:
        identity = self.artifact.manifest.identity
        selection = self._selection.manifest
        if part.shard not in {shard.path for shard in read_selection(selection)}:
            return Fate(self.artifact, "not_selected", f"{selection.name} does not select {part.shard}")
        belongs_to = split_rule(identity.recipe["valid_fraction"])(part.id)
        if belongs_to != identity.recipe["split"]:
            return Fate(self.artifact, "other_split", f"document belongs to {belongs_to}")
        reject = self.find_in_reject_file(part.shard, part.shard_row)
        if reject is not None:
            return Fate(self.artifact, "rejected", reject_summary(reject))
        upstream = {"source_shard": part.shard, "row": part.shard_row}
        number = find_row(self.artifact.path(DOCUMENTS_FILE), upstream)
        if number is None:
            budget = identity.decisions["token_budget"]
            return Fate(self.artifact, "over_budget", f"after the cut at {budget:,} tokens")
        first = self._first_token(number)
        last = first + int(self.dataset.lengths[number]) - 1
        place = {"sequence": number, "first_token": first, "last_token": last}
        return Fate(self.artifact, "in_split", place=place, row_number=number)
