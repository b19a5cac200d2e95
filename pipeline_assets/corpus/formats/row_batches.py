"""Batches of a packed set's rows, as loaders read them."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import compiled
from pipeline_assets.corpus.formats.memmap import BOUNDARIES, INDEX, PackedSet
from pipeline_assets.corpus.spine.errors import InputError


@dataclass(frozen=True)
class RowReader:
    """Rows and their boundaries as plain arrays.

    The arrays are plain because numba takes 30 times as long to recognize a memmap.

    Attributes:
        input_ids: Tokens, int32 (rows, seq_len).
        segments: First token in the row and tokens of each segment, int32 (segments, 2).
        offsets: First segment of each row, then the number of all segments, int64 (rows + 1,).
        path: File of the boundaries, for errors.
    """

    input_ids: NDArray[np.int32]
    segments: NDArray[np.int32]
    offsets: NDArray[np.int64]
    path: Path

    def read(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Read the tokens of rows, and number their documents.

        The tokens are int64 (batch, seq_len); the documents are numbered as `document_numbers` does it.

        Raises:
            IndexError: A row is missing; negative rows count from the end.
            InputError: The boundaries of a row are damaged.
        """
        rows = self._places(rows)
        shape = len(rows), self.input_ids.shape[1]
        tokens, documents = np.empty(shape, np.int64), np.empty(shape, np.int32)
        copied = copy_rows(rows, self.input_ids, self.segments, self.offsets, tokens, documents)
        if copied < len(rows):
            raise _damage(f"segments of row {rows[copied]:,} do not fit into {shape[1]:,} tokens", self.path)
        return tokens, documents

    def part(self, rows: NDArray[np.int64]) -> "RowReader":
        """Copy some rows with their boundaries, for another process.

        Raises:
            IndexError: A row is missing.
        """
        rows = self._places(rows)
        first, last = self.offsets[rows], self.offsets[rows + 1]
        segments = [self.segments[start:stop] for start, stop in zip(first.tolist(), last.tolist(), strict=True)]
        offsets = np.concatenate(([0], np.cumsum(last - first)))
        return RowReader(self.input_ids[rows], np.concatenate(segments), offsets, self.path)

    def _places(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        places = np.where(rows < 0, rows + len(self.input_ids), rows)
        missing = rows[(places < 0) | (places >= len(self.input_ids))]
        if len(missing):
            raise IndexError(f"row must be below {len(self.input_ids):,}, got {missing[0]:,}")
        return places


def open_rows(packed: PackedSet) -> RowReader:
    """Open the rows of a set; if it has no stored boundaries, the whole index is read.

    Raises:
        InputError: The index is missing or damaged, or does not cover the rows.
    """
    if packed.stored_boundaries is not None:
        path, (segments, offsets) = packed.folder / BOUNDARIES, packed.stored_boundaries
    else:
        path = packed.folder / INDEX
        try:
            segments, offsets = decode_boundaries(packed.index_frames())
        except msgspec.DecodeError as error:
            raise _damage(str(error), path) from None
    if len(offsets) != len(packed) + 1:
        raise _damage(f"{len(offsets) - 1:,} rows instead of {len(packed):,}", path)
    return RowReader(np.asarray(packed.input_ids), np.asarray(segments), np.asarray(offsets), path)


class _Segment(msgspec.Struct, frozen=True):
    length: Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]


_decoder = msgspec.json.Decoder(list[_Segment])


def decode_boundaries(frames: Iterable[list[bytes]]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Decode the boundaries of all rows from the lines of an index, frame by frame.

    Returns:
        `segments` and `offsets` of `RowReader`.

    Raises:
        msgspec.DecodeError: A line is not a list of segments.
    """
    counts, lengths = [np.zeros(1, np.int64)], [np.empty(0, np.int32)]
    for lines in frames:
        rows = [_decoder.decode(line) for line in lines]
        counts.append(np.fromiter(map(len, rows), np.int64, len(rows)))
        lengths.append(np.array([segment.length for row in rows for segment in row], np.int32))
    offsets, segments = np.cumsum(np.concatenate(counts)), np.empty((sum(map(len, lengths)), 2), np.int32)
    segments[:, 1] = np.concatenate(lengths)
    starts = np.concatenate(([0], np.cumsum(segments[:, 1], dtype=np.int64)))
    segments[:, 0] = starts[:-1] - np.repeat(starts[offsets[:-1]], np.diff(offsets))
    return segments, offsets


@compiled
def copy_rows(
    rows: NDArray[np.int64],
    input_ids: NDArray[np.int32],
    segments: NDArray[np.int32],
    offsets: NDArray[np.int64],
    tokens: NDArray[np.int64],
    documents: NDArray[np.int32],
) -> int:
    """Copy rows of `RowReader` and number their documents; -1 is padding.

    Returns:
        Number of copied rows: below the batch size if the segments of the next row do not fit into it.
    """
    seq_len = input_ids.shape[1]
    for place in range(len(rows)):
        row = rows[place]
        first, last = offsets[row], offsets[row + 1]
        # Files may be damaged, and numba checks no bounds.
        if first < 0 or last < first or last > len(segments):
            return place
        start = 0
        for segment in range(first, last):
            stop = start + int(segments[segment, 1])
            if stop < start or stop > seq_len:
                return place
            for token in range(start, stop):
                documents[place, token] = segment - first
            start = stop
        for token in range(start, seq_len):
            documents[place, token] = -1
        for token in range(seq_len):
            tokens[place, token] = input_ids[row, token]
    return len(rows)


def _damage(reason: str, path: Path) -> InputError:
    return InputError(f"boundaries are damaged: {reason}", path, "restore the file or rebuild the set")
