"""Writing of a packed set's rows and index, one range of rows at a time.

The documents of a row are spread over the corpus. So the segments of a range are sorted by document, and the token
ids of each file are read in ascending order.
"""

import hashlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.formats import memmap
from pipeline_assets.corpus.formats.arrow_columns import to_arrow
from pipeline_assets.corpus.formats.checked_file import map_values
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, JsonlZstWriter
from pipeline_assets.corpus.packing.encoded_corpus import EncodedShard, first_document_numbers
from pipeline_assets.corpus.packing.plan_format import RowRange
from pipeline_assets.corpus.packing.token_reader import TokenReader
from pipeline_assets.spine.file_ranges import write_range
from pipeline_assets.spine.stage import Window
from pipeline_assets.spine.staging import WORK_FOLDER, OutputFile, Receipt, StagingView


@dataclass(frozen=True)
class _Segments:
    """Segments of a range of rows, see `PlanFiles`.

    Attributes:
        positions: Position of each segment's first token in the flattened array of rows.
        row_starts: First segment of each row, then the number of segments; shape (rows + 1,).
        row_tokens: Number of tokens of each row without padding, shape (rows,).
    """

    documents: NDArray[np.uint32]
    starts: NDArray[np.int32]
    lengths: NDArray[np.int32]
    positions: NDArray[np.int64]
    row_starts: NDArray[np.int64]
    row_tokens: NDArray[np.int64]


def write_rows(
    row_range: RowRange, window: Window, folder: StagingView, seq_len: int, padding_id: int, zstd_level: int
) -> Receipt:
    """Write a range of rows, and their index lines.

    A row with fewer than `seq_len` tokens is filled up with the token `padding_id`. The receipt has the written
    byte range of the token file, the file of index lines, and the count `tokens`, without padding.
    """
    segments = _row_segments(row_range, seq_len)
    tokens = np.empty((row_range.stop - row_range.start, seq_len), memmap.TOKEN_DTYPE)
    for row in np.flatnonzero(segments.row_tokens < seq_len).tolist():
        tokens[row, segments.row_tokens[row] :] = padding_id
    row_bytes = tokens.data.cast("B")
    doc_ids: list[str] = [""] * len(segments.documents)
    sources: list[str] = [""] * len(segments.documents)
    for shard, numbers, documents in _segments_by_shard(row_range, segments):
        _copy_segments(shard, documents, segments, numbers, row_bytes)
        ids = shard.table.doc_ids.take(to_arrow(documents)).to_pylist()
        for segment, doc_id in zip(numbers.tolist(), ids, strict=True):
            doc_ids[segment], sources[segment] = doc_id, shard.source
    first_byte, sha256 = row_range.start * seq_len * memmap.TOKEN_DTYPE.itemsize, hashlib.sha256(row_bytes).hexdigest()
    write_range(folder.path(memmap.INPUT_IDS_FILE), first_byte, row_bytes)
    index = f"{WORK_FOLDER}/index/{row_range.name}{SUFFIX}"
    with JsonlZstWriter(folder.path(index), zstd_level) as writer:
        columns = zip(doc_ids, sources, segments.starts.tolist(), segments.lengths.tolist(), strict=True)
        entries = [*itertools.starmap(memmap.Segment, columns)]
        bounds = itertools.pairwise(segments.row_starts.tolist())
        writer.write_rows([entries[start:stop] for start, stop in bounds])
    written = OutputFile(memmap.INPUT_IDS_FILE, writer.rows, row_bytes.nbytes, sha256, sha256, first_byte)
    return Receipt([written, writer.output(index)], {"tokens": int(segments.lengths.sum(dtype=np.int64))})


def _row_segments(row_range: RowRange, seq_len: int) -> _Segments:
    row_starts = np.array(map_values(row_range.plan.row_starts, np.int64, row_range.start, row_range.stop + 1))
    first, stop = int(row_starts[0]), int(row_starts[-1])
    documents = map_values(row_range.plan.documents, np.uint32, first, stop)
    starts = map_values(row_range.plan.starts, np.int32, first, stop)
    lengths = map_values(row_range.plan.lengths, np.int32, first, stop)
    ends = np.cumsum(lengths, dtype=np.int64)
    row_starts -= first
    # Tokens of the range before each row, without padding. With padding, row r begins at r * seq_len, so its segments
    # shift by the difference.
    before = np.concatenate(([0], ends))[row_starts]
    shifts = np.repeat(np.arange(row_range.stop - row_range.start) * seq_len - before[:-1], np.diff(row_starts))
    return _Segments(documents, starts, lengths, ends - lengths + shifts, row_starts, np.diff(before))


def _segments_by_shard(
    row_range: RowRange, segments: _Segments
) -> Iterator[tuple[EncodedShard, NDArray[np.int64], NDArray[np.int64]]]:
    """Yield (shard, segment indices, document numbers) for each shard with segments.

    Document numbers are relative to the first document of the shard, and ascend.
    """
    order = np.argsort(segments.documents, kind="stable")
    documents = segments.documents[order].astype(np.int64)
    firsts = first_document_numbers(row_range.encoded_shards)
    bounds = np.searchsorted(documents, firsts).tolist()  # first segment of each shard, as documents ascend
    for shard, first, start, stop in zip(row_range.encoded_shards, firsts.tolist(), bounds, bounds[1:], strict=False):
        if start < stop:
            yield shard, order[start:stop], documents[start:stop] - first


def _copy_segments(
    shard: EncodedShard,
    documents: NDArray[np.int64],
    segments: _Segments,
    numbers: NDArray[np.int64],
    row_bytes: memoryview,
) -> None:
    """Copy segments of a shard's documents to their rows.

    `numbers` selects the segments by index in `segments`. `documents` has, for each selected segment, the
    number of its document in the shard; these numbers ascend.
    """
    tokens = shard.table.tokens[documents]
    columns = (segments.starts[numbers], segments.lengths[numbers], segments.positions[numbers], tokens)
    in_bytes = [(column.astype(np.int64) * memmap.TOKEN_DTYPE.itemsize).tolist() for column in columns]
    last, ids = -1, memoryview(b"")  # the last document that was divided, and its ids
    with TokenReader(shard) as reader:
        for document, start, length, position, size in zip(documents.tolist(), *in_bytes, strict=True):
            target = row_bytes[position : position + length]
            if length == size:
                reader.read_document(document, target)
                continue
            if document != last:
                last, ids = document, memoryview(bytearray(size))
                reader.read_document(document, ids)
            target[:] = ids[start : start + length]
