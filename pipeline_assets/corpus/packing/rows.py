"""The stage `rows`: a range of rows of the packed set, tokens and index, out of the token runs.

A row's documents lie anywhere in the corpus. So what a range needs is sorted by where it lies: each run that has some
of it is read once, in ascending order.
"""

import hashlib
import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, JsonlZstWriter
from pipeline_assets.corpus.formats.memmap import DTYPE, INPUT_IDS, Segment
from pipeline_assets.corpus.packing.corpus_lengths import first_documents
from pipeline_assets.corpus.packing.encoded_shard import DocumentTable, EncodedShard
from pipeline_assets.corpus.packing.plan_files import mapped
from pipeline_assets.corpus.packing.row_ranges import RowRange
from pipeline_assets.corpus.spine.building import BuildFolder, OutputFile, Receipt
from pipeline_assets.corpus.spine.errors import Obstacle
from pipeline_assets.corpus.spine.sealing import WORK
from pipeline_assets.corpus.spine.shared_file import write_range
from pipeline_assets.corpus.spine.stage import Window

_encoder = msgspec.json.Encoder()


@dataclass(frozen=True)
class _Segments:
    """The segments of a range: see `PlanFiles`; `places` are their first tokens in the range's rows; `of_rows` the
    first segment of each row, `of_tokens` how many tokens a row has before its padding.
    """

    documents: NDArray[np.uint32]
    starts: NDArray[np.int32]
    lengths: NDArray[np.int32]
    places: NDArray[np.int64]
    of_rows: NDArray[np.int64]
    of_tokens: NDArray[np.int64]


def write_rows(
    rows: RowRange, window: Window, folder: BuildFolder, seq_len: int, padding: int, zstd_level: int
) -> Receipt:
    """Files: the range of the token file that these rows are; the lines of these in the index. Counts: `tokens`."""
    segments = _segments_of(rows, seq_len)
    tokens = np.empty((rows.stop - rows.start, seq_len), DTYPE)
    for row in np.flatnonzero(segments.of_tokens < seq_len).tolist():
        tokens[row, segments.of_tokens[row] :] = padding
    target = tokens.data.cast("B")
    doc_ids: list[str] = [""] * len(segments.documents)
    sources: list[str] = [""] * len(segments.documents)
    for shard, found, documents in _by_shard(rows, segments):
        table = DocumentTable.of(shard)
        starts = table.starts[documents] + segments.starts[found]
        _copy(shard.token_file, starts, segments.lengths[found], segments.places[found], target)
        for segment, doc_id in zip(found.tolist(), table.doc_ids(documents).to_pylist(), strict=True):
            doc_ids[segment], sources[segment] = doc_id, shard.source
    first_byte, sha256 = rows.start * seq_len * DTYPE.itemsize, hashlib.sha256(target).hexdigest()
    write_range(folder.path(INPUT_IDS), first_byte, target)
    index = f"{WORK}/index/{rows.name}{SUFFIX}"
    with JsonlZstWriter(folder.path(index), zstd_level) as writer:
        columns = zip(doc_ids, sources, segments.starts.tolist(), segments.lengths.tolist(), strict=True)
        writer.write_lines(
            _index_lines([*itertools.starmap(Segment, columns)], segments.of_rows), rows.stop - rows.start
        )
    written = OutputFile(INPUT_IDS, rows.stop - rows.start, target.nbytes, sha256, sha256, first_byte)
    return Receipt([written, writer.output(index)], {"tokens": int(segments.lengths.sum(dtype=np.int64))})


def _segments_of(rows: RowRange, seq_len: int) -> _Segments:
    of_rows = np.array(mapped(rows.plan.row_starts, np.int64)[rows.start : rows.stop + 1])
    first, stop = int(of_rows[0]), int(of_rows[-1])
    documents, starts, lengths = (
        np.array(mapped(path, dtype)[first:stop])
        for path, dtype in (
            (rows.plan.documents, np.uint32),
            (rows.plan.starts, np.int32),
            (rows.plan.lengths, np.int32),
        )
    )
    ends = np.cumsum(lengths, dtype=np.int64)
    of_rows -= first
    before = np.concatenate(([0], ends))[of_rows]  # tokens of the rows before
    in_row = np.repeat(np.arange(rows.stop - rows.start) * seq_len - before[:-1], np.diff(of_rows))
    return _Segments(documents, starts, lengths, ends - lengths + in_row, of_rows, np.diff(before))


def _by_shard(
    rows: RowRange, segments: _Segments
) -> Iterator[tuple[EncodedShard, NDArray[np.int64], NDArray[np.int64]]]:
    """Shards, the segments that come out of them, and these segments' documents, numbered in the shard, ascending."""
    order = np.argsort(segments.documents, kind="stable")
    documents = segments.documents[order].astype(np.int64)
    firsts = first_documents(rows.encoded)
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
    bytes_of = [(column.astype(np.int64) * DTYPE.itemsize).tolist() for column in (starts, lengths, places)]
    with open(token_file, "rb", buffering=0) as run:
        descriptor = run.fileno()
        for start, length, place in zip(*bytes_of, strict=True):
            if os.preadv(descriptor, [rows[place : place + length]], start) != length:
                raise Obstacle("the token run ends early", token_file, "run the command again")


def _index_lines(segments: list[Segment], of_rows: NDArray[np.int64]) -> bytes:
    return _encoder.encode_lines([segments[start:stop] for start, stop in itertools.pairwise(of_rows.tolist())])
