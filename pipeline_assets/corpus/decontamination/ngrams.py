"""A table of n-grams, equal ones with one number whatever their hashes are, and texts searched for them.

An n-gram's key is the polynomial of its words' hashes in an odd constant modulo 2**64, so that the key of a longer one
goes on from that of its beginning. Keys propose, the words decide. No n-gram is shorter than the shortest, so a text is
asked at each word for one thing only: whether an n-gram begins with the words there, as many as the shortest has. Few
do, and the bits that tell are small beside the table.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import compiled, inner
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


def number_ngrams(
    words: Words, places: NDArray[np.int64], sizes: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """The number of the n-gram at each place, equal ones with one number, in the order in which they first occur; and
    of each number the first of the places that have it.

    Args:
        places: the first word of each.
        sizes: of each, in words.
    """
    slots = np.full(_power_of_two(2 * len(places)), NONE, np.int32)
    ngrams, firsts = np.empty(len(places), np.int32), np.empty(len(places), np.int64)
    number = _number(words, ngram_keys(words, places, sizes), places, sizes, slots, ngrams, firsts)
    return ngrams, firsts[:number]


def ngram_keys(words: Words, places: NDArray[np.int64], sizes: NDArray[np.int32]) -> NDArray[np.uint64]:
    """The key of the n-gram at each place."""
    keys = np.zeros(len(places), np.uint64)
    for word in range(int(sizes.max(initial=0))):
        is_longer = sizes > word
        keys[is_longer] = keys[is_longer] * POLYNOMIAL + words.hashes[places[is_longer] + word]
    return keys


def ngram_table(words: Words, first_words: NDArray[np.int64], sizes: NDArray[np.int32]) -> NgramTable:
    """The table of different n-grams, of one at least."""
    keys = ngram_keys(words, first_words, sizes)
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
def is_same(words: Words, word: int, others: Words | NgramTable, other: int, size: int) -> bool:
    """Whether the same words, `size` of them, begin at a word of one text and of another."""
    at, other_at = words.begins[word], others.begins[other]
    length = words.begins[word + size] - at
    if length != others.begins[other + size] - other_at:
        return False
    for byte in range(length):  # noqa: SIM110, compiled code has no generators
        if words.text[at + byte] != others.text[other_at + byte]:
            return False
    return True


@compiled
def _number(
    words: Words,
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
                and is_same(words, places[place], words, places[first], sizes[place])
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
        found = Found(np.empty(room, np.int64), np.empty(room, np.int64))
        number = _propose(hashes, first_words, table, found)
        if number <= room:
            return Found(found.words[:number], found.ngrams[:number])
        room = number


def verify(found: Found, words: Words, table: NgramTable) -> Found:
    """Those whose words stand there."""
    is_there = np.empty(len(found.words), bool)
    _verify(found, words, table, is_there)
    return Found(found.words[is_there], found.ngrams[is_there])


@compiled
def _propose(hashes: NDArray[np.uint64], first_words: NDArray[np.int64], table: NgramTable, found: Found) -> int:
    """Fills what is found as far as there is room; how many there are."""
    beginnings, least = table.beginnings, table.all_sizes[0]
    leaves = ONE
    for _ in range(least):
        leaves = leaves * POLYNOMIAL
    number = 0
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
                number = _look_up(rolled, first, end, hashes, table, found, number)
    return number


@inner
def _look_up(
    key: np.uint64, first: int, end: int, hashes: NDArray[np.uint64], table: NgramTable, found: Found, number: int
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
                if number < len(found.words):
                    found.words[number], found.ngrams[number] = first, ngram
                number += 1
            slot = (slot + 1) & (len(slots) - 1)
    return number


@compiled
def _verify(found: Found, words: Words, table: NgramTable, is_there: NDArray[np.bool_]) -> None:
    for place in range(len(found.words)):
        ngram = found.ngrams[place]
        is_there[place] = is_same(words, found.words[place], table, table.first_words[ngram], table.sizes[ngram])
