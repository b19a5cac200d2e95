"""Segments: the pieces of documents that rows are made of."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Segments(NamedTuple):
    """Segments in the order of rows, and in a row as they follow one another, without a gap.

    Attributes:
        rows: of the packed set, shape (segments,).
        ranks: of the draws that they are of, shape (segments,).
        starts: first token in the document, shape (segments,).
        lengths: tokens, shape (segments,), at least 1.
    """

    rows: NDArray[np.int64]
    ranks: NDArray[np.int64]
    starts: NDArray[np.int32]
    lengths: NDArray[np.int32]
