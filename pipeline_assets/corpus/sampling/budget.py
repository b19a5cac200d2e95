"""The longest prefix of documents that fits a token budget."""

import numpy as np
from numpy.typing import NDArray


def documents_that_fit(lengths: NDArray[np.int32], budget: int) -> int:
    """How many documents, from the first on, have at most `budget` tokens together.

    The first document that doesn't fit ends it; shorter ones after it are not looked at.

    Args:
        lengths: tokens per document, shape (documents,); may be empty.
    """
    ends = np.cumsum(lengths, dtype=np.int64)
    return int(np.searchsorted(ends, budget, side="right"))
