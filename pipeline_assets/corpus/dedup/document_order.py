"""The total order of documents that decides which of several duplicates is kept.

Documents are numbered from 0: first the signature stores, then the sources in the order of the recipe; within a source,
shard by shard and row by row. A document's priority, the column `order` of runs, is a uint64: the upper 32 bits are the
selection key (smaller is better), the lower 32 bits are the number. The selection key of documents in signature stores
is 0. So they precede all others under every selection, and none of them is dropped.
"""

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.dedup.recipe import Selection

_MAX_KEY = 2**32 - 1
_NUMBER_MASK = np.uint64(_MAX_KEY)
_32 = np.uint64(32)


def compute_priorities(
    numbers: NDArray[np.uint64], selection: Selection, text_bytes: NDArray[np.int64], qualities: NDArray[np.float32]
) -> NDArray[np.uint64]:
    """Compute priorities; the duplicate with the lowest priority is the one to keep.

    All arrays have the shape (documents,). `text_bytes` has UTF-8 lengths; `qualities` is NaN for a document without a
    quality. The upper 32 bits of each priority are at least 1: 0 is reserved for documents of signature stores, which
    precede all other documents.
    """
    match selection:
        case "first":
            upper = np.ones(len(numbers), np.uint64)  # equal for all: the number in the lower half decides
        case "longest":
            # Longer texts get smaller keys. The cap at _MAX_KEY - 1 keeps the key of a huge text above 0.
            upper = (_MAX_KEY - np.minimum(text_bytes, _MAX_KEY - 1)).astype(np.uint64)
        case "quality":
            # Adding 0 turns -0.0 into 0.0, so that both have the same bits.
            bits = (qualities + np.float32(0)).view(np.int32).astype(np.int64)
            # As int32, bits of positive floats grow with the floats; bits of negative floats grow from -2**31 (-0.0) up
            # while the floats fall. So -2**31 minus such bits is negative and grows with the floats.
            ascending = np.where(bits < 0, -(2**31) - bits, bits)
            # `ascending` is at most 2**31 - 2**23 (infinity), so the difference is above 0 and the best quality has the
            # smallest key. It is below 2**32 - 1, the key of documents without a quality, which come last.
            upper = np.where(np.isnan(qualities), _MAX_KEY, (2**31 - 2) - ascending).astype(np.uint64)
    return upper << _32 | numbers


def is_from_seen_corpus(priorities: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Return a mask of the documents that are in signature stores, shape (documents,)."""
    return priorities <= _NUMBER_MASK


def document_numbers(priorities: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return document numbers: the lower 32 bits of priorities, shape (documents,)."""
    return priorities & _NUMBER_MASK
