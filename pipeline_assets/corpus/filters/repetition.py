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

Loops that would take both ways in turn have no branches: a wrong guess of the processor costs as much as the rest.
"""

from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import always_inline, inner
from pipeline_assets.corpus.filters.words import Count, WordSpans, to_index, to_int64

NONE, ONE, ALL = np.uint64(0), np.uint64(1), np.uint64(2**64 - 1)
_GOLDEN, _ODD = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)
_HALF, _SHIFT = np.uint64(32), np.uint64(29)
_EIGHT = cast(int, np.uint64(8))
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
        repeated_before: of each word, and one beyond, how many words before it occur twice. int32.
    """

    grams: NDArray[np.int32]
    counts: NDArray[np.int32]
    keys: NDArray[np.uint64]
    slots: NDArray[np.int32]
    repeated: NDArray[np.int32]
    repeated_before: NDArray[np.int32]


def scratch_for(longest: int) -> Scratch:
    """Arrays for documents of up to `longest` bytes. Pages that no document fills are never touched."""
    words = longest // 2 + 2
    grams, counts, repeated, before = (np.empty(words, np.int32) for _ in range(4))
    slots = np.empty(1 << (2 * words).bit_length(), np.int32)
    return Scratch(grams, counts, np.empty(words, np.uint64), slots, repeated, before)


@inner
def count_repetition(eights: NDArray[np.uint64], words: WordSpans, scratch: Scratch, counts: NDArray[np.int64]) -> None:
    """Counts what one document repeats, from its words, lines and paragraphs.

    Args:
        eights: `unaligned_u64_view` byte of the document and at least 7 bytes beyond.
    """
    number = to_int64(counts[Count.WORDS])
    _number_words(eights, words, scratch, number)
    left, _, _ = _keep_repeated(number, scratch)
    before, scratch.grams[number] = 0, -1
    for word in range(number + 1):
        scratch.repeated_before[word] = before
        before += scratch.grams[word] >= 0
    lines = _count_copies(words.lines, counts[Count.LINES], words, scratch)
    counts[Count.DUPLICATE_LINES], counts[Count.DUPLICATE_LINE_CHARACTERS] = lines
    paragraphs = _count_copies(words.paragraphs, counts[Count.PARAGRAPHS], words, scratch)
    counts[Count.DUPLICATE_PARAGRAPHS], counts[Count.DUPLICATE_PARAGRAPH_CHARACTERS] = paragraphs
    _count_grams(left, words, scratch, counts)


@inner
def _mixed(key: np.uint64) -> np.uint64:
    key = (key ^ (key >> _HALF)) * _ODD
    return key ^ (key >> _SHIFT)


@inner
def _emptied(slots: NDArray[np.int32], entries: int) -> np.uint64:
    """Empties as much of the table as `entries` need; the mask of its slots."""
    size = 8
    while size < 2 * entries:
        size <<= 1
    for slot in range(size):
        slots[slot] = -1
    return np.uint64(size - 1)


@always_inline
def _find(word: int, slot: np.uint64, key: np.uint64, mask: np.uint64, scratch: Scratch) -> int:
    """Enters a word under its key, which `keys` has, from a slot on; the first word there with this key."""
    keys, slots = scratch.keys, scratch.slots
    slot &= mask
    first = np.int32(word) if slots[slot] < 0 else slots[slot]
    while keys[to_index(first)] != key:
        slot = (slot + ONE) & mask
        first = np.int32(word) if slots[slot] < 0 else slots[slot]
    slots[slot] = first
    return to_int64(first)


@inner
def _number_words(eights: NDArray[np.uint64], words: WordSpans, scratch: Scratch, number: int) -> None:
    """Fills grams and counts for single words, and repeated with all of them."""
    starts, ends, keys, grams, counts = words.starts, words.ends, scratch.keys, scratch.grams, scratch.counts
    mask = _emptied(scratch.slots, number)
    for word in range(to_index(number)):
        start, size = to_index(starts[word]), to_index(ends[word] - starts[word])
        last = max(size, _EIGHT) - _EIGHT  # where its last eight bytes begin
        own = ALL >> (_EIGHT - min(size, _EIGHT)) * _EIGHT  # those of eight bytes that are of a shorter word
        key = _mixed(eights[start] & own ^ (eights[start + last] & own) * _GOLDEN + size)
        at = _EIGHT
        while at < last:
            key = _mixed(key ^ eights[start + at])
            at += _EIGHT
        keys[word], slot = key, key
        first = _find(word, slot, key, mask, scratch)
        while not _is_same(eights, words, to_index(first), word, last, own):
            slot += ONE
            first = _find(word, slot, key, mask, scratch)
        scratch.repeated[word], grams[word], counts[word] = word, first, 0
        counts[to_index(first)] += 1


@always_inline
def _is_same(eights: NDArray[np.uint64], words: WordSpans, first: int, word: int, last: int, own: np.uint64) -> bool:
    """Whether two words are the same; `last` and `own` are of the second: see `_number_words`."""
    start, other = to_index(words.starts[word]), to_index(words.starts[first])
    unlike = to_index(words.ends[word]) - start ^ to_index(words.ends[first]) - other
    unlike |= (eights[start] ^ eights[other] | eights[start + last] ^ eights[other + last]) & own
    at = _EIGHT
    while at < last:
        unlike |= eights[start + at] ^ eights[other + at]
        at += _EIGHT
    return bool(unlike == NONE)


@inner
def _count_copies(firsts: NDArray[np.int32], items: int, words: WordSpans, scratch: Scratch) -> tuple[int, int]:
    """How many lines or paragraphs are copies of an earlier one, and how many characters their words have. Only what
    has no word that occurs once is compared.
    """
    grams, keys, slots, before = scratch.grams, scratch.keys, scratch.slots, scratch.repeated_before
    copies = characters = 0
    mask = _emptied(slots, items)
    for item in range(items):
        start, stop = to_int64(firsts[item]), to_int64(firsts[item + 1])
        if before[stop] - before[start] < stop - start:
            continue
        key = NONE
        for word in range(start, stop):
            key = (key ^ np.uint64(grams[word])) * _GOLDEN
        keys[item] = key
        slot = _mixed(key) & mask
        while slots[slot] >= 0:
            other = firsts[slots[slot]]
            if keys[slots[slot]] == key and firsts[slots[slot] + 1] - other == stop - start:
                word = 0
                while word < stop - start and grams[start + word] == grams[other + word]:
                    word += 1
                if word == stop - start:
                    break
            slot = (slot + ONE) & mask
        if slots[slot] < 0:
            slots[slot] = item
        else:
            copies += 1
            characters += words.characters[stop] - words.characters[start]
    return copies, characters


@inner
def _count_grams(left: int, words: WordSpans, scratch: Scratch, counts: NDArray[np.int64]) -> None:
    """Counts n-grams from pairs upwards, from the words that occur twice; the arrays hold one level, then the next in
    its place.
    """
    characters = words.characters
    for n in range(2, _LONGEST_GRAM + 1):
        left = _pair(left, scratch)
        copied = _number_pairs(n, left, words, scratch)
        left, most, top = _keep_repeated(left, scratch)
        if n > _LONGEST_TOP_GRAM:
            counts[Count.DUPLICATE_5_GRAMS + n - 5] = copied
        elif most > 1:
            counts[Count.TOP_2_GRAM + n - 2] = most * (characters[top + n] - characters[top])
        if left == 0:
            break


@inner
def _pair(left: int, scratch: Scratch) -> int:
    """Of the first `left` words in `repeated`, keeps those whose n-gram may occur twice, and keys them."""
    grams, repeated = scratch.grams, scratch.repeated
    kept = 0
    for index in range(to_index(left)):
        word = to_index(repeated[index])
        first, second = grams[word], grams[word + ONE]
        scratch.keys[word] = _mixed(to_index(first) << _HALF | to_index(second))
        repeated[to_index(kept)] = word
        kept += second >= 0
        grams[word] = first | second >> 31
    return kept


@inner
def _number_pairs(n: int, left: int, words: WordSpans, scratch: Scratch) -> int:
    """Numbers and counts n-grams by their keys; the characters of those that are copies, each counted once."""
    characters, counts = words.characters, scratch.counts
    mask = _emptied(scratch.slots, left)
    covered = copied = 0
    for index in range(to_index(left)):
        word = to_int64(scratch.repeated[index])
        key = scratch.keys[to_index(word)]
        first = _find(word, key, key, mask, scratch)
        scratch.grams[to_index(word)] = first
        counts[to_index(word)] = 0
        counts[to_index(first)] += 1
        is_copy = first != word
        copied += is_copy * to_int64(characters[to_index(word + n)] - characters[to_index(max(word, covered))])
        covered = word + n if is_copy else covered
    return copied


@inner
def _keep_repeated(left: int, scratch: Scratch) -> tuple[int, int, int]:
    """Of the first `left` words in `repeated`, keeps those whose n-gram occurs twice.

    Returns:
        how many, how often the most frequent n-gram occurs, and its first word.
    """
    grams, repeated = scratch.grams, scratch.repeated
    most = kept = 0
    top = -1
    for index in range(to_index(left)):
        word = repeated[index]
        first = grams[to_index(word)]
        count = to_int64(scratch.counts[to_index(first)])
        if count > most:
            most, top = count, to_int64(first)
        repeated[to_index(kept)] = word
        kept += count > 1
        grams[to_index(word)] = first | (np.int32(count > 1) - np.int32(1))
    return kept, most, top
