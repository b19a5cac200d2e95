"""Table documents.parquet of a packed set, with the shard and row of each draw."""

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline_assets.corpus.formats.arrow_columns import bool_column, repeat_text, to_arrow, to_numpy
from pipeline_assets.corpus.formats.checked_file import map_values
from pipeline_assets.corpus.formats.memmap import DOCUMENTS_FILE
from pipeline_assets.corpus.formats.parquet_rows import rows_with_text
from pipeline_assets.corpus.packing.encoded_corpus import EncodedShard, first_document_numbers
from pipeline_assets.corpus.packing.plan_format import DrawnSource, NumberedDraws, PlanFiles
from pipeline_assets.spine.artifact import Artifact

_COLUMNS = {
    **dict.fromkeys(("doc_id", "source", "shard"), pa.string()),
    "row": pa.int64(),
    "license_tag": pa.string(),
    **dict.fromkeys(("epoch", "tokens", "packed_tokens"), pa.int32()),
    "first_row": pa.int64(),
    "is_whole": pa.bool_(),
}
SCHEMA = pa.schema([pa.field(name, kind, nullable=False) for name, kind in _COLUMNS.items()])
_CHUNK_DRAWS = 1 << 16


@dataclass
class DrawnDocuments:
    """Rows of documents.parquet, one per draw (see `mixture`).

    The counts are complete once all `tables` have been read.

    Attributes:
        counts: Counts by source: `documents` and `text_tokens` count the whole source; `drawn` counts draws;
            `packed_tokens` counts tokens in rows; `longer_than_a_row` counts draws of documents that are longer than a
            row; `cut` counts draws of documents that fit in a row but are divided between rows or cut by the budget;
            `unused_documents` and `unused_tokens` count documents and tokens that are in no row.
        license_tokens: Number of packed tokens by source and licence tag.
    """

    numbered_draws: NumberedDraws
    encoded_shards: tuple[EncodedShard, ...]
    plan: PlanFiles
    seq_len: int
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    license_tokens: dict[str, Counter[str]] = field(default_factory=dict)

    def tables(self) -> Iterator[pa.Table]:
        """Yield tables of at most about 65,536 rows, ordered by document, then epoch.

        Columns: id, source, shard, row and licence of the document; `epoch` from 0; `tokens` of the document, with its
        end token; `packed_tokens`, which is less than `tokens` only for the draw that the budget cuts; `first_row`, the
        row of the packed set in which the draw begins; `is_whole`, whether that row has the whole document.
        """
        first_rows = map_values(self.plan.first_rows, np.uint32)
        is_whole = map_values(self.plan.is_whole, np.bool_)
        sources = {source.name: source for source in self.numbered_draws.sources}
        first_numbers = first_document_numbers(self.encoded_shards).tolist()
        for shard, first in zip(self.encoded_shards, first_numbers, strict=False):
            source, table = sources[shard.source], shard.table
            step = max(1, _CHUNK_DRAWS // (source.epochs + 1))
            for start in range(0, shard.documents, step):
                stop = min(start + step, shard.documents)
                documents, epochs, draws = self._list_draws(source, first - source.first_document, start, stop)
                tokens = table.tokens[documents]
                packed = tokens.copy()
                if self.numbered_draws.cut is not None:
                    packed[draws == self.numbered_draws.cut[0]] = self.numbered_draws.cut[1]
                whole, chosen = np.array(is_whole[draws]), to_arrow(documents)
                license_tags = table.license_tags.take(chosen)
                self._add_counts(source.name, table.tokens[start:stop], epochs == 0, tokens, packed, whole)
                self.license_tokens.setdefault(source.name, Counter()).update(
                    count_license_tokens(license_tags, packed)
                )
                columns = [
                    table.doc_ids.take(chosen),
                    repeat_text(shard.source, len(draws)),
                    repeat_text(shard.corpus_path, len(draws)),
                    to_arrow(table.rows[documents]),
                    license_tags,
                    to_arrow(epochs.astype(np.int32)),
                    to_arrow(tokens),
                    to_arrow(packed),
                    to_arrow(first_rows[draws].astype(np.int64)),
                    bool_column(whole),
                ]
                yield pa.Table.from_arrays(columns, schema=SCHEMA)

    def _list_draws(
        self, source: DrawnSource, offset: int, start: int, stop: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return three arrays with an item per draw of documents [start, stop).

        In order, the arrays have the document's number in its shard, the draw's epoch and the draw's number. `offset`
        is the number of documents of the source in earlier shards.
        """
        # The last epoch draws only some documents, `taken`, which ascend: entries low to high - 1 are in this range.
        taken = self.numbered_draws.taken[source.first_taken : source.stop_taken]
        low, high = np.searchsorted(taken, np.array([offset + start, offset + stop], np.uint32)).tolist()
        times = np.full(stop - start, source.epochs)
        times[taken[low:high].astype(np.int64) - offset - start] += 1
        documents = start + np.repeat(np.arange(stop - start), times)
        # The draws of a document begin at cumsum - times in this array, so the difference is the epoch, from 0.
        epochs = np.arange(len(documents)) - np.repeat(np.cumsum(times) - times, times)
        # In a whole epoch, draws are numbered by the document's number in the source.
        draws = source.first_draw + epochs * source.document_count + offset + documents
        # In the last epoch, they are numbered by the document's position in `taken`.
        last_epoch = source.first_draw + source.epochs * source.document_count
        draws[epochs == source.epochs] = np.arange(last_epoch + low, last_epoch + high)
        return documents, epochs, draws

    def _add_counts(
        self,
        source: str,
        document_token_counts: NDArray[np.int32],
        is_first: NDArray[np.bool_],
        tokens: NDArray[np.int32],
        packed_tokens: NDArray[np.int32],
        is_whole: NDArray[np.bool_],
    ) -> None:
        """Add documents and their draws to the counts of a source.

        `document_token_counts` has a value per document, the other arrays per draw. `is_first` is true for the first
        draw of each document; no later draw of it fills rows with more tokens.
        """
        text_tokens, fits = int(document_token_counts.sum(dtype=np.int64)), tokens <= self.seq_len
        self.counts.setdefault(source, Counter()).update(
            documents=len(document_token_counts),
            text_tokens=text_tokens,
            drawn=len(tokens),
            packed_tokens=int(packed_tokens.sum(dtype=np.int64)),
            cut=int((~is_whole & fits).sum()),
            longer_than_a_row=int((~fits).sum()),
            unused_documents=len(document_token_counts) - int(is_first.sum()),
            unused_tokens=text_tokens - int(packed_tokens[is_first].sum(dtype=np.int64)),
        )


def count_license_tokens(license_tags: pa.ChunkedArray, tokens: NDArray[np.int32]) -> dict[str, int]:
    """Sum `tokens` by licence tag; both arguments are columns of one table."""
    coded = license_tags.combine_chunks().dictionary_encode()
    counts = np.bincount(to_numpy(coded.indices), tokens, len(coded.dictionary)).astype(np.int64)
    return dict(zip(coded.dictionary.to_pylist(), counts.tolist(), strict=True))


@dataclass(frozen=True)
class DocumentDraw:
    """Row of `documents.parquet`, see `DrawnDocuments.tables`."""

    doc_id: str
    source: str
    shard: str
    row: int
    license_tag: str
    epoch: int
    tokens: int
    packed_tokens: int
    first_row: int
    is_whole: bool

    @property
    def epoch_summary(self) -> str:
        """Epoch and packed tokens of the draw, such as `in epoch 0: 312 tokens`."""
        cut = "" if self.packed_tokens == self.tokens else f" of {self.tokens:,}"
        return f"in epoch {self.epoch}: {self.packed_tokens:,}{cut} tokens"

    @property
    def summary(self) -> str:
        """Epoch, packed tokens and first row of the draw, as text."""
        where = f"in row {self.first_row:,}" if self.is_whole else f"that begin in row {self.first_row:,}"
        return f"drawn {self.epoch_summary} {where}"


def find_document_draws(packed: Artifact, doc_ids: Collection[str]) -> Iterator[DocumentDraw]:
    """Yield the draws of documents with these ids, in the order of documents.parquet."""
    return (DocumentDraw(**row) for row in rows_with_text(packed.path(DOCUMENTS_FILE), "doc_id", doc_ids))
