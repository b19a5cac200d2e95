"""A table of n-grams: equal ones have one number, whatever their hashes are.

An n-gram's key is the polynomial of its words' hashes in an odd constant modulo 2**64, so that the key of a longer one
goes on from that of its beginning.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import compiled, inner
from pipeline_assets.corpus.decontamination.words import Words

POLYNOMIAL = np.uint64(0x9E3779B97F4A7C15)
_32, _6, _12, _63 = np.uint64(32), np.uint64(6), np.uint64(12), np.uint64(63)
ONE, ZERO = np.uint64(1), np.uint64(0)
NONE = -1
_BITS = 16  # for each n-gram, three of them set: of words where none begins, about one in a hundred is looked up
_LEAST_BITS = 1 << 12


class NgramTable(NamedTuple):
    """Different n-grams, numbered.

    Attributes:
        text, begins: all words that n-grams are made of, as in `Words`.
        keys: of each n-gram, uint64.
        first_words: of each in `begins`, int64.
        sizes: of each, in words, int32.
        all_sizes: those that there are, ascending; int32.
        slots: numbers of n-grams by key, open addressing; -1 where there is none. int32, a power of two of them.
        beginnings: bits of the keys of all n-grams' first words, as many as the shortest has; a key's bits are in one
            uint64, a power of two of them.
    """

    text: NDArray[np.uint8]
    begins: NDArray[np.int64]
    keys: NDArray[np.uint64]
    first_words: NDArray[np.int64]
    sizes: NDArray[np.int32]
    all_sizes: NDArray[np.int32]
    slots: NDArray[np.int32]
    beginnings: NDArray[np.uint64]


class Numbered(NamedTuple):
    """N-grams of texts, equal ones with one number, in the order in which they first occur.

    Attributes:
        ngrams: at each place; int32.
        keys, first_words, sizes: of each number, as in `NgramTable`.
    """

    ngrams: NDArray[np.int32]
    keys: NDArray[np.uint64]
    first_words: NDArray[np.int64]
    sizes: NDArray[np.int32]


def number_ngrams(words: Words, places: NDArray[np.int64], sizes: NDArray[np.int32]) -> Numbered:
    """The n-grams at places.

    Args:
        places: the first word of each.
        sizes: of each, in words.
    """
    place_keys = ngram_keys(words, places, sizes)
    slots = np.full(_power_of_two(2 * len(places)), NONE, np.int32)
    ngrams, firsts = np.empty(len(places), np.int32), np.empty(len(places), np.int64)
    number = _number(words.text, words.begins, place_keys, places, sizes, slots, ngrams, firsts)
    firsts = firsts[:number]
    return Numbered(ngrams, place_keys[firsts], places[firsts], sizes[firsts])


def ngram_keys(words: Words, places: NDArray[np.int64], sizes: NDArray[np.int32]) -> NDArray[np.uint64]:
    """The key of the n-gram at each place."""
    keys = np.empty(len(places), np.uint64)
    _hash(words.hashes, places, sizes, keys)
    return keys


def ngram_table(words: Words, numbered: Numbered, is_kept: NDArray[np.bool_]) -> NgramTable:
    """The table of those that are kept, renumbered; at least one is."""
    keys, first_words, sizes = numbered.keys[is_kept], numbered.first_words[is_kept], numbered.sizes[is_kept]
    slots = np.full(_power_of_two(2 * len(keys)), NONE, np.int32)
    _place(keys, slots)
    all_sizes = np.flatnonzero(np.bincount(sizes)).astype(np.int32)
    beginnings = np.zeros(_power_of_two(max(_BITS * len(keys), _LEAST_BITS)) // 64, np.uint64)
    _mark(ngram_keys(words, first_words, np.full(len(keys), all_sizes[0])), beginnings)
    return NgramTable(words.text, words.begins, keys, first_words, sizes, all_sizes, slots, beginnings)


def _power_of_two(at_least: int) -> int:
    return 1 << (at_least - 1).bit_length()


@inner
def slot_of(key: np.uint64, slots: int) -> int:
    """Where a key is looked for first, of so many slots, a power of two."""
    return np.int64(key >> _32) & (slots - 1)  # type: ignore[return-value]


@inner
def bits_of(key: np.uint64) -> np.uint64:
    """The bits that tell that a key may be there."""
    return ONE << (key & _63) | ONE << (key >> _6 & _63) | ONE << (key >> _12 & _63)


@inner
def is_same(
    text: NDArray[np.uint8],
    begins: NDArray[np.int64],
    word: int,
    other_text: NDArray[np.uint8],
    other_begins: NDArray[np.int64],
    other: int,
    size: int,
) -> bool:
    """Whether the same words, `size` of them, begin at a word of one text and of another."""
    at, other_at = begins[word], other_begins[other]
    length = begins[word + size] - at
    if length != other_begins[other + size] - other_at:
        return False
    for byte in range(length):  # noqa: SIM110, compiled code has no generators
        if text[at + byte] != other_text[other_at + byte]:
            return False
    return True


@compiled
def _hash(
    hashes: NDArray[np.uint64], places: NDArray[np.int64], sizes: NDArray[np.int32], keys: NDArray[np.uint64]
) -> None:
    for place in range(len(places)):
        key = ZERO
        for word in range(places[place], places[place] + sizes[place]):
            key = key * POLYNOMIAL + hashes[word]
        keys[place] = key


@compiled
def _number(
    text: NDArray[np.uint8],
    begins: NDArray[np.int64],
    keys: NDArray[np.uint64],
    places: NDArray[np.int64],
    sizes: NDArray[np.int32],
    slots: NDArray[np.int32],
    ngrams: NDArray[np.int32],
    firsts: NDArray[np.int64],
) -> int:
    """Numbers what stands at the places; how many numbers there are. `firsts`: the first place of each number."""
    number = 0
    for place in range(len(places)):
        slot = slot_of(keys[place], len(slots))
        while slots[slot] != NONE:
            first = firsts[slots[slot]]
            if (
                keys[first] == keys[place]
                and sizes[first] == sizes[place]
                and is_same(text, begins, places[place], text, begins, places[first], sizes[place])
            ):
                break
            slot = (slot + 1) & (len(slots) - 1)
        if slots[slot] == NONE:
            slots[slot] = number
            firsts[number] = place
            number += 1
        ngrams[place] = slots[slot]
    return number


@compiled
def _place(keys: NDArray[np.uint64], slots: NDArray[np.int32]) -> None:
    for ngram in range(len(keys)):
        slot = slot_of(keys[ngram], len(slots))
        while slots[slot] != NONE:
            slot = (slot + 1) & (len(slots) - 1)
        slots[slot] = ngram


@compiled
def _mark(keys: NDArray[np.uint64], bits: NDArray[np.uint64]) -> None:
    for key in keys:
        bits[slot_of(key, len(bits))] |= bits_of(key)
