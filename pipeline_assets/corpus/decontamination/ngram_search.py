"""Texts searched for the n-grams of a table: keys propose, the words decide.

No n-gram is shorter than the shortest, so a text is asked at each word for one thing only: whether an n-gram begins
with the words there, as many as the shortest has. Few do, and the bits that tell are small beside the table.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import compiled, inner
from pipeline_assets.corpus.decontamination.ngrams import (
    NONE,
    ONE,
    POLYNOMIAL,
    ZERO,
    NgramTable,
    bits_of,
    is_same,
    slot_of,
)
from pipeline_assets.corpus.decontamination.words import Words


class Found(NamedTuple):
    """N-grams in a text: the word at which each begins, ascending, and its number; int64."""

    words: NDArray[np.int64]
    ngrams: NDArray[np.int64]


def propose(hashes: NDArray[np.uint64], first_words: NDArray[np.int64], table: NgramTable) -> Found:
    """N-grams in documents, by their keys alone.

    Args:
        hashes, first_words: as in `NormalizedBatch`.
    """
    room = len(hashes) // 16 + 16
    while True:
        words, ngrams = np.empty(room, np.int64), np.empty(room, np.int64)
        number = _propose(hashes, first_words, table, words, ngrams)
        if number <= room:
            return Found(words[:number], ngrams[:number])
        room = number


def verify(found: Found, words: Words, table: NgramTable) -> Found:
    """Those whose words stand there."""
    is_there = np.empty(len(found.words), bool)
    _verify(found.words, found.ngrams, words.text, words.begins, table, is_there)
    return Found(found.words[is_there], found.ngrams[is_there])


@compiled
def _propose(
    hashes: NDArray[np.uint64],
    first_words: NDArray[np.int64],
    table: NgramTable,
    found_words: NDArray[np.int64],
    found_ngrams: NDArray[np.int64],
) -> int:
    """Fills what is found as far as there is room; how many there are."""
    beginnings, least = table.beginnings, table.all_sizes[0]
    leaves = ONE
    for _ in range(least):
        leaves = leaves * POLYNOMIAL
    found = 0
    for document in range(len(first_words) - 1):
        begin, end = first_words[document], first_words[document + 1]
        rolled = ZERO
        for word in range(begin, min(begin + least - 1, end)):
            rolled = rolled * POLYNOMIAL + hashes[word]
        for first in range(begin, end - least + 1):
            rolled = rolled * POLYNOMIAL + hashes[first + least - 1]
            if first > begin:
                rolled -= hashes[first - 1] * leaves
            if not bits_of(rolled) & ~beginnings[slot_of(rolled, len(beginnings))]:
                found = _look_up(rolled, first, end, hashes, table, found_words, found_ngrams, found)
    return found


@inner
def _look_up(
    key: np.uint64,
    first: int,
    end: int,
    hashes: NDArray[np.uint64],
    table: NgramTable,
    found_words: NDArray[np.int64],
    found_ngrams: NDArray[np.int64],
    found: int,
) -> int:
    """All n-grams that may begin at a word, given the key of as many words as the shortest has; how many are found by
    now.
    """
    slots, after = table.slots, first + table.all_sizes[0]
    for size in table.all_sizes:
        if first + size > end:
            break
        while after < first + size:
            key = key * POLYNOMIAL + hashes[after]
            after += 1
        slot = slot_of(key, len(slots))
        while slots[slot] != NONE:
            ngram = slots[slot]
            if table.keys[ngram] == key and table.sizes[ngram] == size:
                if found < len(found_words):
                    found_words[found], found_ngrams[found] = first, ngram
                found += 1
            slot = (slot + 1) & (len(slots) - 1)
    return found


@compiled
def _verify(
    found_words: NDArray[np.int64],
    found_ngrams: NDArray[np.int64],
    text: NDArray[np.uint8],
    begins: NDArray[np.int64],
    table: NgramTable,
    is_there: NDArray[np.bool_],
) -> None:
    for place in range(len(found_words)):
        ngram = found_ngrams[place]
        is_there[place] = is_same(
            text, begins, found_words[place], table.text, table.begins, table.first_words[ngram], table.sizes[ngram]
        )
