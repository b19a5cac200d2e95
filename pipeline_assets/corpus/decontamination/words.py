"""Words of normalised text as n-grams are made of them: their bytes, where each begins, and their hashes."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.dedup.words import BLANK, NormalizedBatch


class Words(NamedTuple):
    """Words in a row, a blank after each.

    Attributes:
        text: UTF-8, uint8.
        begins: of each word in `text`, and where the next one would begin; int64, (words + 1,).
        hashes: of each word, uint64.
    """

    text: NDArray[np.uint8]
    begins: NDArray[np.int64]
    hashes: NDArray[np.uint64]


def words_of(batch: NormalizedBatch) -> Words:
    """All words of a batch, of one document after the other."""
    blanks = np.flatnonzero(batch.text == BLANK)[: len(batch.word_hashes)]
    return Words(batch.text, np.concatenate(([0], blanks + 1)), batch.word_hashes)


def between(words: Words, first: int, stop: int) -> Words:
    """Some of them."""
    begins = words.begins[first : stop + 1]
    return Words(words.text[begins[0] : begins[-1]], begins - begins[0], words.hashes[first:stop])


def only(words: Words, is_kept: NDArray[np.bool_]) -> Words:
    """Those that are kept, as if there had been no others."""
    lengths = np.diff(words.begins)
    begins = np.concatenate(([0], np.cumsum(lengths[is_kept])))
    return Words(words.text[np.repeat(is_kept, lengths)], begins, words.hashes[is_kept])
