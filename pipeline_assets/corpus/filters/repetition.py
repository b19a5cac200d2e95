"""How much of a text is repetition: Rae et al. 2021 (Gopher, arXiv 2112.11446), section A.1.1 and table A1.

The paper measures, for lines and paragraphs, the fraction that are duplicates and the fraction of characters in them;
for n-grams of 2 to 4 words, the fraction of characters in the most frequent one; of 5 to 10 words, the fraction of
characters in all duplicates, characters of overlapping ones counted once. What it leaves open is decided so:

- Characters are those of words: whitespace is neither compared nor counted, so every fraction is of the same whole.
- A duplicate is a copy of something earlier in the document: the first of its kind isn't one.
- The most frequent n-gram counts with every occurrence, the first of several equally frequent ones; it must occur
  twice. Words compare as they stand, case and punctuation included.

datatrove 0.10 takes spaCy's tokens for words, counts blanks of top n-grams and of the whole but not of duplicate ones,
lets an n-gram that occurs once be the top one, and after a duplicate n-gram skips n words, so that of a copied run of
12 words it counts 10. Here the paper is followed: all 12.

Nothing is hashed away: an n-gram is a pair of (n-1)-grams, and those are numbers. Only where both occur twice can the
pair do so; each level looks at what is left of the one below, which in most text is little.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import inner
from pipeline_assets.corpus.filters.words import Count, Words, wide

_GOLDEN, _ODD = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)
_HALF, _SHIFT, _ALL, _64 = np.uint64(32), np.uint64(29), np.uint64(2**64 - 1), np.uint64(64)
_LOW = np.uint64(2**32 - 1)
_LONGEST_TOP_GRAM, _LONGEST_GRAM = 4, 10


class Scratch(NamedTuple):
    """What comparing the words of one document takes, with room for the longest.

    Attributes:
        grams: of each word, the first word of the first n-gram equal to the one that begins there; -1 where it is
            known to occur once. int32.
        counts: of each first n-gram, how often it occurs. int32.
        keys: of each n-gram (or line, or paragraph) in the table, what stands for it. uint64.
        slots: the open-addressed hash table: indices into `keys`, -1 for an empty slot. int32.
        repeated: words at which an n-gram begins that occurs twice, ascending. int32.
    """

    grams: NDArray[np.int32]
    counts: NDArray[np.int32]
    keys: NDArray[np.uint64]
    slots: NDArray[np.int32]
    repeated: NDArray[np.int32]


def scratch_for(longest: int) -> Scratch:
    """Arrays for documents of up to `longest` bytes. Pages that no document fills are never touched."""
    words = longest // 2 + 2
    room = [np.empty(words, np.int32) for _ in range(3)]
    slots = np.empty(1 << (2 * words).bit_length(), np.int32)
    return Scratch(room[0], room[1], np.empty(words, np.uint64), slots, room[2])


@inner
def count_repetition(eights: NDArray[np.uint64], words: Words, scratch: Scratch, counts: NDArray[np.int64]) -> None:
    """Counts what one document repeats, from its words, lines and paragraphs.

    Args:
        eights: `eight_bytes_at_each` byte of the document and at least 7 bytes beyond.
    """
    _compare_words(eights, words, scratch, counts[Count.WORDS])
    lines = _count_copies(words.lines, counts[Count.LINES], words, scratch)
    counts[Count.DUPLICATE_LINES], counts[Count.DUPLICATE_LINE_CHARACTERS] = lines
    paragraphs = _count_copies(words.paragraphs, counts[Count.PARAGRAPHS], words, scratch)
    counts[Count.DUPLICATE_PARAGRAPHS], counts[Count.DUPLICATE_PARAGRAPH_CHARACTERS] = paragraphs
    _count_grams(words, scratch, counts)


@inner
def _mixed(key: np.uint64) -> np.uint64:
    key = (key ^ (key >> _HALF)) * _ODD
    return key ^ (key >> _SHIFT)


@inner
def _emptied(slots: NDArray[np.int32], entries: int) -> int:
    """Empties as much of the table as `entries` need; the mask of its slots."""
    size = 1
    while size < entries + (entries >> 1) + 1:
        size <<= 1
    for slot in range(size):
        slots[slot] = -1
    return size - 1


@inner
def _compare_words(eights: NDArray[np.uint64], words: Words, scratch: Scratch, number: int) -> None:
    """Fills grams and counts for single words. A word of up to eight bytes is its own key."""
    starts, ends, keys, slots = words.starts, words.ends, scratch.keys, scratch.slots
    mask = _emptied(slots, number)
    for word in range(number):
        start, size = starts[word], ends[word] - starts[word]
        last = start + size - 8
        if size <= 8:
            key = eights[start] & (_ALL >> (_64 - np.uint64(8 * size)))
        else:
            key = np.uint64(size)
            for at in range(start, last, 8):
                key = _mixed(key ^ eights[at])
            key = _mixed(key ^ eights[last])
        keys[word] = key
        slot = np.int64(_mixed(key)) & mask
        while slots[slot] >= 0:
            first = slots[slot]
            if keys[first] == key and ends[first] - starts[first] == size:
                other = starts[first]
                at = 0
                while at < size - 8 and eights[start + at] == eights[other + at]:
                    at += 8
                if at >= size - 8 and (size <= 8 or eights[last] == eights[other + size - 8]):
                    break
            slot = (slot + 1) & mask
        if slots[slot] < 0:
            slots[slot] = word
            scratch.counts[word] = 0
        scratch.grams[word] = slots[slot]
        scratch.counts[slots[slot]] += 1


@inner
def _count_copies(firsts: NDArray[np.int32], number: int, words: Words, scratch: Scratch) -> tuple[int, int]:
    """How many lines or paragraphs are copies of an earlier one, and how many characters their words have."""
    grams, keys, slots = scratch.grams, scratch.keys, scratch.slots
    mask = _emptied(slots, number)
    copies = characters = 0
    for item in range(number):
        start, stop = firsts[item], firsts[item + 1]
        key = np.uint64(0)
        for word in range(start, stop):
            key = (key ^ np.uint64(grams[word])) * _GOLDEN
        keys[item] = key
        slot = np.int64(_mixed(key)) & mask
        while slots[slot] >= 0:
            other = firsts[slots[slot]]
            if keys[slots[slot]] == key and firsts[slots[slot] + 1] - other == stop - start:
                word = 0
                while word < stop - start and grams[start + word] == grams[other + word]:
                    word += 1
                if word == stop - start:
                    break
            slot = (slot + 1) & mask
        if slots[slot] < 0:
            slots[slot] = item
        else:
            copies += 1
            characters += words.characters[stop] - words.characters[start]
    return copies, characters


@inner
def _count_grams(words: Words, scratch: Scratch, counts: NDArray[np.int64]) -> None:
    """Counts n-grams from single words upwards; the arrays hold one level, then the next in its place."""
    repeated, characters = scratch.repeated, words.characters
    number = wide(counts[Count.WORDS])
    for word in range(number):
        repeated[word] = word
    left, _, _ = _keep_repeated(number, scratch)
    for n in range(2, _LONGEST_GRAM + 1):
        left = _pair(n, left, number, scratch)
        copied = _number_pairs(n, left, words, scratch)
        left, most, top = _keep_repeated(left, scratch)
        if n > _LONGEST_TOP_GRAM:
            counts[Count.DUPLICATE_5_GRAMS + n - 5] = copied
        elif most > 1:
            counts[Count.TOP_2_GRAM + n - 2] = most * (characters[top + n] - characters[top])


# The loops of the next two functions take both ways in turn, so they append without a branch: a wrong guess of the
# processor costs as much as the rest.
@inner
def _keep_repeated(left: int, scratch: Scratch) -> tuple[int, int, int]:
    """Of the first `left` words in `repeated`, keeps those whose n-gram occurs twice.

    Returns:
        how many, how often the most frequent n-gram occurs, and its first word.
    """
    grams, counts, repeated = scratch.grams, scratch.counts, scratch.repeated
    most = kept = 0
    top = -1
    for place in range(left):
        word = repeated[place]
        first = grams[word]
        count = counts[first]
        if count > most:
            most, top = wide(count), wide(first)
        repeated[kept] = word
        kept += count > 1
        grams[word] = first if count > 1 else -1
    return kept, most, top


@inner
def _pair(n: int, left: int, number: int, scratch: Scratch) -> int:
    """Of the first `left` words in `repeated`, keeps those whose n-gram may occur twice, and keys them."""
    grams, keys, repeated = scratch.grams, scratch.keys, scratch.repeated
    kept = 0
    for place in range(left):
        word = repeated[place]
        if word + n > number:
            grams[word] = -1
            continue
        second = grams[word + 1]
        keys[word] = np.uint64(grams[word]) << _HALF | np.uint64(second)
        repeated[kept] = word
        kept += second >= 0
        grams[word] = grams[word] if second >= 0 else -1
    return kept


@inner
def _number_pairs(n: int, left: int, words: Words, scratch: Scratch) -> int:
    """Numbers and counts n-grams by their keys; the characters of those that are copies, each counted once."""
    grams, counts, keys, slots, repeated = scratch.grams, scratch.counts, scratch.keys, scratch.slots, scratch.repeated
    mask = _emptied(slots, left)
    covered = copied = 0
    for place in range(left):
        word = repeated[place]
        key = keys[word]
        first = grams[word]
        if key & _LOW != np.uint64(first + 1):  # else the two stand together where the first one first stood
            slot = np.int64(_mixed(key)) & mask
            while slots[slot] >= 0 and keys[slots[slot]] != key:
                slot = (slot + 1) & mask
            if slots[slot] < 0:
                slots[slot] = word
            first = slots[slot]
        if first == word:
            counts[word] = 1
        else:
            counts[first] += 1
            copied += words.characters[word + n] - words.characters[max(word, covered)]
            covered = word + n
        grams[word] = first
    return copied
