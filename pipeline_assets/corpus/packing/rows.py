"""A range of rows of the packed set, tokens and index, out of the token runs; and what tells where documents lie.

A row's documents lie anywhere in the corpus. So what a range needs is sorted by where it lies: each run that has some
of it is read once, in ascending order. documents.parquet has a line for each drawn document, so that every token of it
leads to a row of a shard; boundaries are for masks that let a document attend to itself alone.
"""

import hashlib
import itertools
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline_assets.corpus.formats import memmap
from pipeline_assets.corpus.formats.arrow_columns import mask, numbers, repeated, to_array
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, JsonlZstWriter
from pipeline_assets.corpus.packing import plan_files
from pipeline_assets.spine.durable import DurableFile, write_range
from pipeline_assets.spine.errors import RetryableError
from pipeline_assets.spine.stage import Window
from pipeline_assets.spine.staging import WORK, OutputFile, Receipt, StagingDir, StagingView

_encoder = msgspec.json.Encoder()


@dataclass(frozen=True)
class _Segments:
    """The segments of a range: see `PlanFiles`; `places` are their first tokens in the range's rows; `of_rows` the
    first segment of each row, `token_starts` how many tokens a row has before its padding.
    """

    documents: NDArray[np.uint32]
    starts: NDArray[np.int32]
    lengths: NDArray[np.int32]
    places: NDArray[np.int64]
    row_starts: NDArray[np.int64]
    token_starts: NDArray[np.int64]


def write_rows(
    rows: plan_files.RowRange, window: Window, folder: StagingView, seq_len: int, padding: int, zstd_level: int
) -> Receipt:
    """Files: the range of the token file that these rows are; the lines of these in the index. Counts: `tokens`."""
    segments = _row_segments(rows, seq_len)
    tokens = np.empty((rows.stop - rows.start, seq_len), memmap.DTYPE)
    for row in np.flatnonzero(segments.token_starts < seq_len).tolist():
        tokens[row, segments.token_starts[row] :] = padding
    target = tokens.data.cast("B")
    doc_ids: list[str] = [""] * len(segments.documents)
    sources: list[str] = [""] * len(segments.documents)
    for shard, found, documents in _by_shard(rows, segments):
        starts = shard.table.starts[documents] + segments.starts[found]
        _copy(shard.token_file, starts, segments.lengths[found], segments.places[found], target)
        ids = shard.table.doc_ids.take(to_array(documents)).to_pylist()
        for segment, doc_id in zip(found.tolist(), ids, strict=True):
            doc_ids[segment], sources[segment] = doc_id, shard.source
    first_byte, sha256 = rows.start * seq_len * memmap.DTYPE.itemsize, hashlib.sha256(target).hexdigest()
    write_range(folder.path(memmap.INPUT_IDS), first_byte, target)
    index = f"{WORK}/index/{rows.name}{SUFFIX}"
    with JsonlZstWriter(folder.path(index), zstd_level) as writer:
        columns = zip(doc_ids, sources, segments.starts.tolist(), segments.lengths.tolist(), strict=True)
        of_all, bounds = [*itertools.starmap(memmap.Segment, columns)], itertools.pairwise(segments.row_starts.tolist())
        lines = _encoder.encode_lines([of_all[start:stop] for start, stop in bounds])
        writer.write_lines(lines, rows.stop - rows.start)
    written = OutputFile(memmap.INPUT_IDS, rows.stop - rows.start, target.nbytes, sha256, sha256, first_byte)
    return Receipt([written, writer.output(index)], {"tokens": int(segments.lengths.sum(dtype=np.int64))})


def _row_segments(rows: plan_files.RowRange, seq_len: int) -> _Segments:
    of_rows = np.array(plan_files.mapped(rows.plan.row_starts, np.int64)[rows.start : rows.stop + 1])
    first, stop = int(of_rows[0]), int(of_rows[-1])
    documents = np.array(plan_files.mapped(rows.plan.documents, np.uint32)[first:stop])
    starts, lengths = (
        np.array(plan_files.mapped(path, np.int32)[first:stop]) for path in (rows.plan.starts, rows.plan.lengths)
    )
    ends = np.cumsum(lengths, dtype=np.int64)
    of_rows -= first
    before = np.concatenate(([0], ends))[of_rows]  # tokens of the rows before
    in_row = np.repeat(np.arange(rows.stop - rows.start) * seq_len - before[:-1], np.diff(of_rows))
    return _Segments(documents, starts, lengths, ends - lengths + in_row, of_rows, np.diff(before))


def _by_shard(
    rows: plan_files.RowRange, segments: _Segments
) -> Iterator[tuple[plan_files.EncodedShard, NDArray[np.int64], NDArray[np.int64]]]:
    """Shards, the segments that come out of them, and these segments' documents, numbered in the shard, ascending."""
    order = np.argsort(segments.documents, kind="stable")
    documents = segments.documents[order].astype(np.int64)
    firsts = plan_files.first_documents(rows.encoded)
    bounds = np.searchsorted(documents, firsts).tolist()
    for shard, first, start, stop in zip(rows.encoded, firsts.tolist(), bounds, bounds[1:], strict=False):
        if start < stop:
            yield shard, order[start:stop], documents[start:stop] - first


def _copy(
    token_file: Path, starts: NDArray[np.int64], lengths: NDArray[np.int32], places: NDArray[np.int64], rows: memoryview
) -> None:
    """Pieces of a token run to their places: read right there, since pages that are mapped first cost half as much
    again.
    """
    bytes_of = [(column.astype(np.int64) * memmap.DTYPE.itemsize).tolist() for column in (starts, lengths, places)]
    with open(token_file, "rb", buffering=0) as run:
        descriptor = run.fileno()
        for start, length, place in zip(*bytes_of, strict=True):
            if os.preadv(descriptor, [rows[place : place + length]], start) != length:
                raise RetryableError("the token run ends early", token_file, "run the command again")


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
    """The lines, in the order of the corpus, a document's epochs one after the other; counted as they are taken.

    Attributes:
        counts: by source: `documents` and `text_tokens` that there are; `drawn` lines, a document has one for each
            epoch; `packed_tokens`; drawn documents that fit in a row and are `cut`, by rows or by the budget, or are
            `longer_than_a_row`; `unused_documents` and `unused_tokens`, never drawn.
        license_tokens: those packed of each source, by licence.
    """

    drawn: plan_files.Drawn
    encoded: tuple[plan_files.EncodedShard, ...]
    plan: plan_files.PlanFiles
    seq_len: int
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    license_tokens: dict[str, Counter[str]] = field(default_factory=dict)

    def tables(self) -> Iterator[pa.Table]:
        """
        Columns beside ids and places: `epoch` from 0; `tokens` of the document with its end, `packed_tokens` those of
        them that are in the set: all, but for the document that the budget cut; `first_row`, where it begins;
        `is_whole`: that row holds all of it.
        """
        first_rows = plan_files.mapped(self.plan.first_rows, np.uint32)
        is_whole = plan_files.mapped(self.plan.is_whole, np.bool_)
        sources = {source.name: source for source in self.drawn.sources}
        for shard, first in zip(self.encoded, plan_files.first_documents(self.encoded).tolist(), strict=False):
            source, table = sources[shard.source], shard.table
            step = max(1, _CHUNK_DRAWS // (source.epochs + 1))
            for start in range(0, shard.documents, step):
                stop = min(start + step, shard.documents)
                documents, epochs, draws = self._draws(source, first - source.first_document, start, stop)
                tokens = table.tokens[documents]
                packed = tokens.copy()
                if self.drawn.cut is not None:
                    packed[draws == self.drawn.cut[0]] = self.drawn.cut[1]
                whole, chosen = np.array(is_whole[draws]), to_array(documents)
                license_tags = table.license_tags.take(chosen)
                self._count(source.name, table.tokens[start:stop], epochs == 0, tokens, packed, whole)
                self.license_tokens.setdefault(source.name, Counter()).update(license_tokens(license_tags, packed))
                columns = [
                    table.doc_ids.take(chosen),
                    repeated(shard.source, len(draws)),
                    repeated(shard.path, len(draws)),
                    to_array(table.rows[documents]),
                    license_tags,
                    to_array(epochs.astype(np.int32)),
                    to_array(tokens),
                    to_array(packed),
                    to_array(first_rows[draws].astype(np.int64)),
                    mask(whole),
                ]
                yield pa.Table.from_arrays(columns, schema=SCHEMA)

    def _draws(
        self, source: plan_files.DrawnSource, offset: int, start: int, stop: int
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
        source: str,
        there: NDArray[np.int32],
        is_first: NDArray[np.bool_],
        tokens: NDArray[np.int32],
        packed: NDArray[np.int32],
        whole: NDArray[np.bool_],
    ) -> None:
        """
        Args:
            there: tokens of all documents of a piece of a shard.
            is_first: which draws are the first of their document, of which no later one has more.
        """
        text_tokens, fits = int(there.sum(dtype=np.int64)), tokens <= self.seq_len
        self.counts.setdefault(source, Counter()).update(
            documents=len(there),
            text_tokens=text_tokens,
            drawn=len(tokens),
            packed_tokens=int(packed.sum(dtype=np.int64)),
            cut=int((~whole & fits).sum()),
            longer_than_a_row=int((~fits).sum()),
            unused_documents=len(there) - int(is_first.sum()),
            unused_tokens=text_tokens - int(packed[is_first].sum(dtype=np.int64)),
        )


def license_tokens(license_tags: pa.ChunkedArray, tokens: NDArray[np.int32]) -> dict[str, int]:
    """Tokens by licence: of each document its tag and its tokens, shape (documents,)."""
    coded = license_tags.combine_chunks().dictionary_encode()
    counts = np.bincount(numbers(coded.indices), tokens, len(coded.dictionary)).astype(np.int64)
    return dict(zip(coded.dictionary.to_pylist(), counts.tolist(), strict=True))


_CHUNK_ROWS = 1 << 16


def write_boundaries(building: StagingDir, plan: plan_files.PlanFiles) -> list[OutputFile]:
    """`boundaries.npy` and `boundary_offsets.npy`, see `formats.memmap`."""
    row_starts = plan_files.mapped(plan.row_starts, np.int64)
    with DurableFile(building.path(memmap.BOUNDARIES)) as boundaries:
        memmap.write_npy_header(boundaries, "<i4", (int(row_starts[-1]), 2))
        for chunk in _boundaries(plan):
            boundaries.write(chunk.data)
    with DurableFile(building.path(memmap.BOUNDARY_OFFSETS)) as offsets:
        memmap.write_npy_header(offsets, "<i8", row_starts.shape)
        offsets.write(row_starts.data)
    return [
        OutputFile.plain(memmap.BOUNDARIES, int(row_starts[-1]), boundaries),
        OutputFile.plain(memmap.BOUNDARY_OFFSETS, len(row_starts), offsets),
    ]


def _boundaries(plan: plan_files.PlanFiles) -> Iterator[NDArray[np.int32]]:
    row_starts, lengths = plan_files.mapped(plan.row_starts, np.int64), plan_files.mapped(plan.lengths, np.int32)
    for first in range(0, len(row_starts) - 1, _CHUNK_ROWS):
        of_rows = row_starts[first : first + _CHUNK_ROWS + 1]
        pieces = lengths[of_rows[0] : of_rows[-1]]
        begins = np.cumsum(pieces, dtype=np.int64) - pieces
        of_first = begins[of_rows[:-1] - of_rows[0]]
        in_row = begins - np.repeat(of_first, np.diff(of_rows))
        yield np.stack([in_row, pieces], axis=1).astype(np.int32)
