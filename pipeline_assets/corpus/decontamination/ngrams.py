"""A table of n-grams, equal ones with one number whatever their hashes are, and texts searched for them.

An n-gram's key is the polynomial of its words' hashes in an odd constant modulo 2**64, so that the key of a longer one
goes on from that of its beginning. Keys propose, the words decide. No n-gram is shorter than the shortest, so a text is
asked at each word for one thing only: whether an n-gram begins with the words there, as many as the shortest has. Few
do, and the bits that tell are small beside the table.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.dedup.steps import is_first
from pipeline_assets.corpus.dedup.words import BLANK, POLYNOMIAL, NormalizedBatch


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


def split_words(batch: NormalizedBatch) -> Words:
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


_32, _6, _12, _63 = np.uint64(32), np.uint64(6), np.uint64(12), np.uint64(63)
_ONE = np.uint64(1)
_BITS = 16  # for each n-gram, three of them set: of words where none begins, about one in a hundred is looked up
_LEAST_BITS = 1 << 12


class NgramTable(NamedTuple):
    """Different n-grams, numbered.

    Attributes:
        text, begins: all words that n-grams are made of, as in `Words`.
        first_words: of each n-gram in `begins`, int64.
        sizes: of each, in words, int32.
        all_sizes: those that there are, ascending; int32.
        keys: of all n-grams, ascending; uint64.
        by_key: the number of the n-gram of each key, int64.
        beginnings: bits of the keys of all n-grams' first words, as many as the shortest has; a key's bits are in one
            uint64, a power of two of them.
    """

    text: NDArray[np.uint8]
    begins: NDArray[np.int64]
    first_words: NDArray[np.int64]
    sizes: NDArray[np.int32]
    all_sizes: NDArray[np.int32]
    keys: NDArray[np.uint64]
    by_key: NDArray[np.int64]
    beginnings: NDArray[np.uint64]


def number_ngrams(
    words: Words, places: NDArray[np.int64], sizes: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The number of the n-gram at each place, equal ones with one number; and of each number the first of the places
    that have it.

    Args:
        places: the first word of each.
        sizes: of each, in words.
    """
    keys = ngram_keys(words.hashes, places, sizes)
    ngrams, firsts = np.empty(len(places), np.int64), np.empty(0, np.int64)
    left = np.lexsort((sizes, keys))
    while len(left):  # again for those whose key another n-gram has too
        is_new = is_first(keys[left], sizes[left])
        of_key = np.cumsum(is_new) - 1
        first = left[is_new]
        is_same = _are_same(words, places[left], words, places[first][of_key], sizes[left])
        ngrams[left[is_same]] = len(firsts) + of_key[is_same]
        firsts, left = np.append(firsts, first), left[~is_same]
    return ngrams, firsts


def ngram_keys(hashes: NDArray[np.uint64], places: NDArray[np.int64], sizes: NDArray[np.int32]) -> NDArray[np.uint64]:
    """The key of the n-gram at each place, from the hashes of all words."""
    keys = np.zeros(len(places), np.uint64)
    for word in range(int(sizes.max(initial=0))):
        is_longer = sizes > word
        keys[is_longer] = keys[is_longer] * POLYNOMIAL + hashes[places[is_longer] + word]
    return keys


def ngram_table(words: Words, first_words: NDArray[np.int64], sizes: NDArray[np.int32]) -> NgramTable:
    """The table of different n-grams, of one at least."""
    keys = ngram_keys(words.hashes, first_words, sizes)
    by_key = np.argsort(keys)
    all_sizes = np.flatnonzero(np.bincount(sizes)).astype(np.int32)
    beginnings = np.zeros(1 << (max(_BITS * len(keys), _LEAST_BITS) // 64 - 1).bit_length(), np.uint64)
    slots, bits = _marks(ngram_keys(words.hashes, first_words, np.full(len(keys), all_sizes[0])), len(beginnings))
    np.bitwise_or.at(beginnings, slots, bits)
    return NgramTable(words.text, words.begins, first_words, sizes, all_sizes, keys[by_key], by_key, beginnings)


def _marks(keys: NDArray[np.uint64], slots: int) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """The slot of each key, of a power of two, and the bits there that tell that it may be in the table."""
    bits = _ONE << (keys & _63) | _ONE << (keys >> _6 & _63) | _ONE << (keys >> _12 & _63)
    return (keys >> _32).astype(np.int64) & (slots - 1), bits


class Found(NamedTuple):
    """N-grams in a text: the word at which each begins, ascending, and its number; int64."""

    words: NDArray[np.int64]
    ngrams: NDArray[np.int64]


def propose(hashes: NDArray[np.uint64], first_words: NDArray[np.int64], table: NgramTable) -> Found:
    """N-grams in documents, by their keys alone.

    Args:
        hashes, first_words: as in `NormalizedBatch`.
    """
    least = int(table.all_sizes[0])
    keys = np.zeros(max(len(hashes) - least + 1, 0), np.uint64)
    for word in range(least):
        keys *= POLYNOMIAL
        keys += hashes[word : word + len(keys)]
    slots, bits = _marks(keys, len(table.beginnings))
    places = np.flatnonzero(bits & ~table.beginnings[slots] == 0)
    ends = first_words[np.searchsorted(first_words, places, side="right")]  # of their documents
    words, ngrams = [], []
    for size in table.all_sizes.tolist():
        places, ends = places[places + size <= ends], ends[places + size <= ends]
        keys = ngram_keys(hashes, places, np.full(len(places), size))
        low, high = (np.searchsorted(table.keys, keys, side) for side in ("left", "right"))
        owners = np.repeat(np.arange(len(places)), high - low)
        found = table.by_key[np.arange(len(owners)) + (high - np.cumsum(high - low))[owners]]
        is_long = table.sizes[found] == size
        words.append(places[owners][is_long])
        ngrams.append(found[is_long])
    in_order = np.argsort(np.concatenate(words), kind="stable")
    return Found(np.concatenate(words)[in_order], np.concatenate(ngrams)[in_order])


def verify(found: Found, words: Words, table: NgramTable) -> Found:
    """Those whose words stand there."""
    is_there = _are_same(words, found.words, table, table.first_words[found.ngrams], table.sizes[found.ngrams])
    return Found(found.words[is_there], found.ngrams[is_there])


def _are_same(
    words: Words,
    places: NDArray[np.int64],
    others: Words | NgramTable,
    other_places: NDArray[np.int64],
    sizes: NDArray[np.int32],
) -> NDArray[np.bool_]:
    """Whether the same words, `sizes` of them, begin at places of one text and of another."""
    starts, other_starts = words.begins[places], others.begins[other_places]
    lengths = words.begins[places + sizes] - starts
    is_same: NDArray[np.bool_] = lengths == others.begins[other_places + sizes] - other_starts
    text, other_text = words.text.data, others.text.data
    for pair in np.flatnonzero(is_same).tolist():
        start, other, length = int(starts[pair]), int(other_starts[pair]), int(lengths[pair])
        is_same[pair] = text[start : start + length] == other_text[other : other + length]
    return is_same
