"""The total order of documents that decides which of several duplicates is kept.

A document's number is its position in the corpus: sources in the order of the recipe, their shards, their rows. Its
priority, the column `order` of runs, is a uint64: the selection key in the upper 32 bits (smaller is better), the
number in the lower 32. Documents of signature stores have an upper half of 0, so they precede all others, whatever
the selection, and none is dropped.
"""

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.dedup.recipe import Selection

MAX_DOCUMENTS = 2**32
_LAST = 2**32 - 1
_NUMBER = np.uint64(_LAST)
_32 = np.uint64(32)


def priorities(
    numbers: NDArray[np.uint64], selection: Selection, text_bytes: NDArray[np.int64], quality: NDArray[np.float32]
) -> NDArray[np.uint64]:
    """Compute the priorities of documents; the lowest of several duplicates is kept.

    Args:
        numbers: Numbers of the documents, shape (documents,).
        selection: Rule of the recipe.
        text_bytes: UTF-8 bytes of each text, shape (documents,).
        quality: Shape (documents,); NaN for a document without a quality.

    Returns:
        Shape (documents,); the upper 32 bits are above 0.
    """
    match selection:
        case "first":
            upper = np.ones(len(numbers), np.uint64)
        case "longest":
            upper = (_LAST - np.minimum(text_bytes, _LAST - 1)).astype(np.uint64)
        case "quality":
            # Adding 0 turns -0.0 into 0.0, so that both have the same bits.
            bits = (quality + np.float32(0)).view(np.int32).astype(np.int64)
            # Bits of positive floats ascend as the floats do; those of negative ones are mirrored.
            ascending = np.where(bits < 0, -(2**31) - bits, bits)
            # Negate, so that the best quality comes first; shift above 0; documents without a quality come last.
            upper = np.where(np.isnan(quality), _LAST, (2**31 - 2) - ascending).astype(np.uint64)
    return upper << _32 | numbers


def is_from_seen_corpus(orders: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Return a mask of the documents that signature stores contain."""
    return orders <= _NUMBER


def document_numbers(orders: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the numbers of documents from their priorities."""
    return orders & _NUMBER
