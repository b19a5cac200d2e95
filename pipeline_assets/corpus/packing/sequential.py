"""Sequential packing: documents one after the other, cut where a row ends. Nothing is padded."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.packing.segments import Segments

_CHUNK = 1 << 16


def sequential_rows(lengths: NDArray[np.int32], seq_len: int) -> Iterator[Segments]:
    """All rows, in pieces that may end within a row.

    Args:
        lengths: of the draws in their order, shape (draws,), together a multiple of `seq_len`.
    """
    offset = 0
    for first in range(0, len(lengths), _CHUNK):
        ends = offset + np.cumsum(lengths[first : first + _CHUNK], dtype=np.int64)
        begins = np.concatenate(([offset], ends[:-1]))
        pieces = (ends - 1) // seq_len - begins // seq_len + 1
        draws = np.repeat(np.arange(len(pieces)), pieces)
        piece = np.arange(len(draws)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        rows = begins[draws] // seq_len + piece
        starts = np.maximum(begins[draws], rows * seq_len)
        stops = np.minimum(ends[draws], (rows + 1) * seq_len)
        in_document = (starts - begins[draws]).astype(np.int32)
        yield Segments(rows, first + draws, in_document, (stops - starts).astype(np.int32))
        offset = int(ends[-1])
