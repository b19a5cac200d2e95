"""documents.parquet: a line for each drawn document, so that every token of it leads to a row of a shard."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline_assets.corpus.formats.arrow import column_of, mask, numbers, repeated
from pipeline_assets.corpus.packing.corpus_lengths import first_documents
from pipeline_assets.corpus.packing.drawn import Drawn, DrawnSource
from pipeline_assets.corpus.packing.encoded_shard import DocumentTable, EncodedShard
from pipeline_assets.corpus.packing.plan_files import PlanFiles, mapped

SCHEMA = pa.schema(
    [
        pa.field("doc_id", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("shard", pa.string(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),
        pa.field("license_tag", pa.string(), nullable=False),
        pa.field("epoch", pa.int32(), nullable=False),
        pa.field("tokens", pa.int32(), nullable=False),
        pa.field("packed_tokens", pa.int32(), nullable=False),
        pa.field("first_row", pa.int64(), nullable=False),
        pa.field("is_whole", pa.bool_(), nullable=False),
    ]
)
_CHUNK_DRAWS = 1 << 16


@dataclass
class SourceCounts:
    """What became of a source's documents.

    Attributes:
        documents, text_tokens: that there are.
        drawn: lines of documents.parquet; a document has one for each epoch.
        packed_tokens: that are in the set.
        cut: drawn documents that fit in a row, and lie in several or are cut by the budget.
        longer_than_a_row: drawn documents that no row could hold.
        unused_documents, unused_tokens: never drawn.
        license_tokens: those that are in the set, by licence.
    """

    documents: int = 0
    text_tokens: int = 0
    drawn: int = 0
    packed_tokens: int = 0
    cut: int = 0
    longer_than_a_row: int = 0
    unused_documents: int = 0
    unused_tokens: int = 0
    license_tokens: dict[str, int] = field(default_factory=dict)


@dataclass
class DrawnDocuments:
    """The lines, in the order of the corpus, a document's epochs one after the other; counted as they are taken."""

    drawn: Drawn
    encoded: tuple[EncodedShard, ...]
    plan: PlanFiles
    seq_len: int
    counts: dict[str, SourceCounts] = field(default_factory=dict)

    def tables(self) -> Iterator[pa.Table]:
        """
        Columns beside ids and places: `epoch` from 0; `tokens` of the document with its end, `packed_tokens` those of
        them that are in the set: all, but for the document that the budget cut; `first_row`, where it begins;
        `is_whole`: that row holds all of it.
        """
        first_rows, is_whole = mapped(self.plan.first_rows, np.uint32), mapped(self.plan.is_whole, np.bool_)
        sources = {source.name: source for source in self.drawn.sources}
        for shard, first in zip(self.encoded, first_documents(self.encoded).tolist(), strict=False):
            source, table = sources[shard.source], DocumentTable.of(shard)
            step = max(1, _CHUNK_DRAWS // (source.epochs + 1))
            for start in range(0, shard.documents, step):
                stop = min(start + step, shard.documents)
                documents, epochs, draws = self._draws(source, first - source.first_document, start, stop)
                tokens = table.tokens[documents]
                packed = tokens.copy()
                if self.drawn.cut is not None:
                    packed[draws == self.drawn.cut[0]] = self.drawn.cut[1]
                whole = np.array(is_whole[draws])
                self._count(source, table.tokens[start:stop], documents - start, tokens, packed, whole)
                license_tags = table.license_tags(documents)
                self._count_licences(source, license_tags, packed)
                columns = [
                    table.doc_ids(documents),
                    repeated(shard.source, len(draws)),
                    repeated(shard.path, len(draws)),
                    column_of(table.rows[documents]),
                    license_tags,
                    column_of(epochs.astype(np.int32)),
                    column_of(tokens),
                    column_of(packed),
                    column_of(first_rows[draws].astype(np.int64)),
                    mask(whole),
                ]
                yield pa.Table.from_arrays(columns, schema=SCHEMA)

    def _draws(
        self, source: DrawnSource, offset: int, start: int, stop: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Of some documents of a shard each draw: the document, numbered in the shard, the epoch, and its number.

        Args:
            offset: the number of the shard's first document in the source.
        """
        taken = self.drawn.taken[source.first_taken : source.stop_taken]
        low, high = np.searchsorted(taken, np.array([offset + start, offset + stop], np.uint32)).tolist()
        times = np.full(stop - start, source.epochs)
        times[taken[low:high].astype(np.int64) - offset - start] += 1
        documents = start + np.repeat(np.arange(stop - start), times)
        epochs = np.arange(len(documents)) - np.repeat(np.cumsum(times) - times, times)
        draws = source.first_draw + epochs * source.documents + offset + documents
        in_last = source.first_draw + source.epochs * source.documents
        draws[epochs == source.epochs] = np.arange(in_last + low, in_last + high)
        return documents, epochs, draws

    def _count(
        self,
        source: DrawnSource,
        there: NDArray[np.int32],
        drawn: NDArray[np.int64],
        tokens: NDArray[np.int32],
        packed: NDArray[np.int32],
        whole: NDArray[np.bool_],
    ) -> None:
        """
        Args:
            there: tokens of all documents of a piece of a shard.
            drawn: which of them each draw is of.
        """
        counts = self.counts.setdefault(source.name, SourceCounts())
        used = np.zeros(len(there), np.int32)
        np.maximum.at(used, drawn, packed)
        counts.documents += len(there)
        counts.text_tokens += int(there.sum(dtype=np.int64))
        counts.drawn += len(drawn)
        counts.packed_tokens += int(packed.sum(dtype=np.int64))
        counts.cut += int((~whole & (tokens <= self.seq_len)).sum())
        counts.longer_than_a_row += int((tokens > self.seq_len).sum())
        counts.unused_documents += int((used == 0).sum())
        counts.unused_tokens += int((there - used).sum(dtype=np.int64))

    def _count_licences(self, source: DrawnSource, license_tags: pa.ChunkedArray, packed: NDArray[np.int32]) -> None:
        coded = license_tags.combine_chunks().dictionary_encode()
        tokens = np.bincount(numbers(coded.indices), packed, len(coded.dictionary)).astype(np.int64)
        counted = self.counts[source.name].license_tokens
        for license_tag, count in zip(coded.dictionary.to_pylist(), tokens.tolist(), strict=True):
            counted[license_tag] = counted.get(license_tag, 0) + count
