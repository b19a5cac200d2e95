"""Batches of packed rows, with run-length-encoded document numbers."""

import itertools
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.formats.memmap import BOUNDARIES_FILE, INDEX_FILE, PADDING_DOCUMENT, PackedSet
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.plural import pluralize


@dataclass(frozen=True)
class RowReader:
    """Reader of packed rows and the boundaries of their segments.

    The segments of row `i` are `boundaries[boundary_offsets[i]:boundary_offsets[i + 1]]`.
    """

    input_ids: NDArray[np.int32]  # tokens, shape (rows, seq_len)
    boundaries: NDArray[np.int32]  # start (position in the row) and length of each segment, shape (segments, 2)
    boundary_offsets: NDArray[np.int64]  # into `boundaries`, shape (rows + 1,)
    boundaries_path: Path  # file with the boundaries, named in errors

    def read(self, row_numbers: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int64]]:
        """Read a batch of rows, with run-length-encoded document numbers.

        Each row has one run per segment, numbered from 0, and then a run of padding, numbered -1 and possibly empty.
        `np.repeat(numbers, lengths)` has one number per token, row after row. Negative row numbers count from the end.
        Raise IndexError for a row that does not exist, and InputError if boundaries are damaged.

        Returns:
            Tokens (batch, seq_len); numbers (runs,); lengths (runs,).
        """
        size, seq_len = self.input_ids.shape
        places = np.where(row_numbers < 0, row_numbers + size, row_numbers)
        if (missing := (places < 0) | (places >= size)).any():
            raise IndexError(f"row must be below {size:,}, got {row_numbers[missing][0]:,}")
        first, last = self.boundary_offsets[places], self.boundary_offsets[places + 1]
        # A row has a run per segment, then one for padding, which may be empty: with 2 segments, runs 0, 1 and 2.
        runs = last - first + 1
        is_damaged = (first < 0) | (runs < 1) | (last > len(self.boundaries))
        if not is_damaged.any():
            stops = runs.cumsum()
            starts, padding = stops - runs, stops - 1
            # The position of a run among all runs, minus the first position of its row, is its number in the row.
            numbers = np.arange(stops[-1]) - starts.repeat(runs)
            segments = numbers + first.repeat(runs)
            segments[padding] = 0  # any segment, because padding gets the rest of the row
            lengths = self.boundaries[segments, 1].astype(np.int64)
            lengths[padding] = 0
            lengths[padding] = seq_len - np.add.reduceat(lengths, starts)
            is_damaged = np.minimum.reduceat(lengths, starts) < 0  # also if segments exceed seq_len
        if is_damaged.any():
            reason = f"segments of row {places[is_damaged][0]:,} do not fit into {seq_len:,} tokens"
            raise _boundary_error(reason, self.boundaries_path)
        numbers[padding] = PADDING_DOCUMENT
        return self.input_ids[places], numbers.astype(np.int32), lengths


def open_row_reader(packed: PackedSet) -> RowReader:
    """Open a reader of the rows of a packed set.

    Without stored boundaries, compute them from the whole index. Raise InputError if boundaries or index are damaged.
    """
    if packed.stored_boundaries is not None:
        path, (segments, offsets) = packed.folder / BOUNDARIES_FILE, packed.stored_boundaries
    else:
        path = packed.folder / INDEX_FILE
        try:
            segments, offsets = decode_boundaries(packed.index_lines_by_frame())
        except msgspec.DecodeError as error:
            raise _boundary_error(str(error), path) from None
    if len(offsets) != len(packed) + 1:
        raise _boundary_error(f"{pluralize(len(offsets) - 1, 'row')} instead of {len(packed):,}", path)
    return RowReader(np.asarray(packed.input_ids), np.asarray(segments), np.asarray(offsets), path)


class _SegmentLength(msgspec.Struct, frozen=True):
    length: Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]


_decoder = msgspec.json.Decoder(list[_SegmentLength])


def decode_boundaries(frames: Iterable[list[bytes]]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Compute segment boundaries and their offsets from the lines of an index.

    `RowReader` describes both arrays. Raise DecodeError for an invalid line.
    """
    counts, lengths = array("q", [0]), array("i")
    # Decode one row at a time: thousands of decoded rows would trigger garbage collections, which scan all of torch.
    for row in map(_decoder.decode, itertools.chain.from_iterable(frames)):
        counts.append(len(row))
        lengths.extend([segment.length for segment in row])
    offsets, segments = np.cumsum(counts), np.empty((len(lengths), 2), np.int32)
    segments[:, 1] = lengths
    # A segment's start among the tokens of all rows, minus the start of its row, is its first token in the row.
    starts = np.concatenate(([0], np.cumsum(segments[:, 1], dtype=np.int64)))
    segments[:, 0] = starts[:-1] - np.repeat(starts[offsets[:-1]], np.diff(offsets))
    return segments, offsets


def _boundary_error(reason: str, path: Path) -> InputError:
    return InputError(f"boundaries are damaged: {reason}", path, "restore the file or rebuild the set")
