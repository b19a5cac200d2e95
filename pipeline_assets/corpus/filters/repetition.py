"""Repetition in a text: duplicate lines, paragraphs and n-grams.

The rules are from Rae et al. 2021 (Gopher, arXiv 2112.11446), section A.1.1 and table A1. The paper measures fractions:

- lines and paragraphs: the fraction of duplicates, and the fraction of characters in duplicates;
- n-grams of 2 to 4 words: the fraction of characters in the most frequent n-gram;
- n-grams of 5 to 10 words: the fraction of characters in all duplicates. A character in overlapping duplicates counts
  once.

Where the paper is silent, these rules apply:

- Only characters of words are compared and counted, so all fractions of characters have one denominator.
- A duplicate is a copy of something earlier in the document: the first occurrence is not a duplicate.
- If the most frequent n-gram occurs at least twice, all its occurrences are counted. If several n-grams are equally
  frequent, only the first of them is counted.
- Words are equal only if all characters are equal, including case and punctuation.

datatrove 0.10 differs. It uses spaCy's tokens as words, counts spaces except in duplicate n-grams, and accepts a most
frequent n-gram that occurs once. After a duplicate n-gram, datatrove continues n words later: in a copied run of 12
words, it counts 10 if n is 5 or 10. This module counts all 12.
"""

from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import always_inline, compiled_inner
from pipeline_assets.corpus.filters.characters import to_index, to_int64
from pipeline_assets.corpus.filters.words import TextCount, WordSpans

# Loops avoid branches that go both ways about equally often: a misprediction costs as much as the rest of the loop.
# Hashes and indices are uint64 throughout, because numba turns int64 and uint64 together into float64.
_ZERO, _ONE, _ALL_BITS = np.uint64(0), np.uint64(1), np.uint64(2**64 - 1)
_GOLDEN, _MIX_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)
_HALF_BITS, _MIX_SHIFT = np.uint64(32), np.uint64(29)
_EIGHT = cast(int, np.uint64(8))
_MAX_TOP_GRAM_WORDS, _MAX_GRAM_WORDS = 4, 10  # words of an n-gram


class Scratch(NamedTuple):
    """Working arrays for the n-grams of one document, one length at a time.

    Words are indices in `WordSpans`. An n-gram's id is the word at which it first occurs. The arrays may have more
    entries than a document needs.
    """

    gram_ids: NDArray[np.int32]  # for each word, the id of the n-gram that begins there; -1 if it occurs only once
    counts: NDArray[np.int32]  # number of occurrences of each n-gram, at the index of its id
    keys: NDArray[np.uint64]  # hash of each word, line or paragraph; or of the ids of an n-gram's two (n-1)-grams
    slots: NDArray[np.int32]  # open-addressed hash table of indices into `keys`; -1 marks an empty slot
    repeat_starts: NDArray[np.int32]  # words at which a repeated n-gram begins, ascending
    repeated_before: NDArray[np.int32]  # number of words before each word that occur at least twice; then the total


def allocate_scratch(max_bytes: int) -> Scratch:
    """Allocate scratch for texts of up to `max_bytes`; unused pages take no memory."""
    words = max_bytes // 2 + 2  # as in `allocate_spans`
    gram_ids, counts, repeated, before = (np.empty(words, np.int32) for _ in range(4))
    slots = np.empty(1 << (2 * words).bit_length(), np.int32)
    return Scratch(gram_ids, counts, np.empty(words, np.uint64), slots, repeated, before)


@compiled_inner
def count_repetition(
    u64_view: NDArray[np.uint64], words: WordSpans, scratch: Scratch, counts: NDArray[np.int64]
) -> None:
    """Set the repetition counts of a document in `counts`.

    Call `find_words` first: it fills `words`, and counts words, lines and paragraphs in `counts`. `u64_view` is the
    `unaligned_u64_view` of the document and of at least 7 bytes after it.
    """
    number = to_int64(counts[TextCount.WORDS])
    _assign_word_ids(u64_view, words, scratch, number)
    repeated_count, _, _ = _keep_repeated(number, scratch)
    repeated, scratch.gram_ids[number] = 0, -1  # no word is at the end
    for word in range(number + 1):
        scratch.repeated_before[word] = repeated
        repeated += scratch.gram_ids[word] >= 0
    lines = _count_copies(words.lines, counts[TextCount.LINES], words, scratch)
    counts[TextCount.DUPLICATE_LINES], counts[TextCount.DUPLICATE_LINE_CHARACTERS] = lines
    paragraphs = _count_copies(words.paragraphs, counts[TextCount.PARAGRAPHS], words, scratch)
    counts[TextCount.DUPLICATE_PARAGRAPHS], counts[TextCount.DUPLICATE_PARAGRAPH_CHARACTERS] = paragraphs
    _count_repeated_characters(repeated_count, words, scratch, counts)


@compiled_inner
def _mix_bits(key: np.uint64) -> np.uint64:
    """Spread the bits of a key; different keys give different results."""
    # Each step can be undone: the XOR with a right shift leaves the top bits, which restore the others from the top
    # down; an odd factor has an inverse modulo 2**64.
    key = (key ^ (key >> _HALF_BITS)) * _MIX_MULTIPLIER
    return key ^ (key >> _MIX_SHIFT)


@compiled_inner
def _clear_slots(slots: NDArray[np.int32], entry_count: int) -> np.uint64:
    """Clear the slots of a hash table for `entry_count` keys; return the index mask."""
    size = 8
    while size < 2 * entry_count:  # a power of two, so that `index & (size - 1)` is the index modulo the size
        size <<= 1
    for slot in range(size):
        slots[slot] = -1
    return np.uint64(size - 1)


@always_inline
def _find_or_insert(word: int, slot: np.uint64, key: np.uint64, index_mask: np.uint64, scratch: Scratch) -> int:
    """Return the word stored for a key; if there is none, store and return `word`.

    The search begins at `slot`.
    """
    keys, slots = scratch.keys, scratch.slots
    slot &= index_mask
    # An empty slot reads as `word` itself, whose key matches, so the probe ends there.
    first = np.int32(word) if slots[slot] < 0 else slots[slot]
    while keys[to_index(first)] != key:
        slot = (slot + _ONE) & index_mask
        first = np.int32(word) if slots[slot] < 0 else slots[slot]
    slots[slot] = first  # unchanged unless the slot was empty
    return to_int64(first)


@compiled_inner
def _assign_word_ids(u64_view: NDArray[np.uint64], words: WordSpans, scratch: Scratch, word_count: int) -> None:
    """Set each word's id in `scratch.gram_ids` to the index of its first occurrence.

    Also count the words of each id in `scratch.counts`, and list all words in `scratch.repeat_starts`.
    """
    starts, ends, keys, gram_ids, counts = words.starts, words.ends, scratch.keys, scratch.gram_ids, scratch.counts
    mask = _clear_slots(scratch.slots, word_count)
    for word in range(to_index(word_count)):
        start, size = to_index(starts[word]), to_index(ends[word] - starts[word])
        # The hash reads the first eight bytes and the last eight, which begin at `last` and may overlap the first.
        last = max(size, _EIGHT) - _EIGHT
        # Of a word shorter than eight bytes, only the low `size` bytes belong to it, because memory is little-endian:
        # shift the mask of all 64 bits right by 8 bits for each foreign byte.
        own_bytes_mask = _ALL_BITS >> (_EIGHT - min(size, _EIGHT)) * _EIGHT
        # Without the factor, equal first and last bytes would cancel out; the size counts zero bytes at the end.
        key = _mix_bits(u64_view[start] & own_bytes_mask ^ (u64_view[start + last] & own_bytes_mask) * _GOLDEN + size)
        at = _EIGHT
        while at < last:  # then mix in the bytes between, eight at a time
            key = _mix_bits(key ^ u64_view[start + at])
            at += _EIGHT
        keys[word], slot = key, key
        first = _find_or_insert(word, slot, key, mask, scratch)
        while not _is_same_word(u64_view, words, to_index(first), word, last, own_bytes_mask):
            # Another word has this hash: probe from the next slot. An inserted word equals itself, which ends the loop.
            slot += _ONE
            first = _find_or_insert(word, slot, key, mask, scratch)
        scratch.repeat_starts[word], gram_ids[word], counts[word] = word, first, 0
        counts[to_index(first)] += 1


@always_inline
def _is_same_word(
    u64_view: NDArray[np.uint64],
    words: WordSpans,
    earlier_word: int,
    word: int,
    last_offset: int,
    own_bytes_mask: np.uint64,
) -> bool:
    """Check whether two words are equal.

    The comments in `_assign_word_ids` explain `last_offset` and `own_bytes_mask`.
    """
    start, other = to_index(words.starts[word]), to_index(words.starts[earlier_word])
    # XOR is 0 for equal numbers, and OR collects the differences: of the sizes, then of the bytes that the hash reads.
    # If the sizes differ, bytes beyond the other word are read too; they change nothing, as the result is not 0 anyway.
    difference = to_index(words.ends[word]) - start ^ to_index(words.ends[earlier_word]) - other
    last = u64_view[start + last_offset] ^ u64_view[other + last_offset]
    difference |= (u64_view[start] ^ u64_view[other] | last) & own_bytes_mask
    at = _EIGHT
    while at < last_offset:
        difference |= u64_view[start + at] ^ u64_view[other + at]
        at += _EIGHT
    return bool(difference == _ZERO)


@compiled_inner
def _count_copies(first_words: NDArray[np.int32], count: int, words: WordSpans, scratch: Scratch) -> tuple[int, int]:
    """Count the copied lines or paragraphs, and the characters in these copies.

    `first_words` has the first word of each line or paragraph, then the number of words in the document.
    """
    gram_ids, keys, slots, before = scratch.gram_ids, scratch.keys, scratch.slots, scratch.repeated_before
    copies = characters = 0
    mask = _clear_slots(slots, count)
    for item in range(count):
        start, stop = to_int64(first_words[item]), to_int64(first_words[item + 1])
        # An item is not a copy if fewer than all of its words occur at least twice.
        if before[stop] - before[start] < stop - start:
            continue
        key = _ZERO
        for word in range(start, stop):  # hash the ids of the words, in order
            key = (key ^ np.uint64(gram_ids[word])) * _GOLDEN
        keys[item] = key
        slot = _mix_bits(key) & mask
        # Probe until an empty slot or an item with the same hash, the same number of words and the same words.
        while slots[slot] >= 0:
            other = first_words[slots[slot]]
            if keys[slots[slot]] == key and first_words[slots[slot] + 1] - other == stop - start:
                word = 0
                while word < stop - start and gram_ids[start + word] == gram_ids[other + word]:
                    word += 1
                if word == stop - start:
                    break
            slot = (slot + _ONE) & mask
        if slots[slot] < 0:  # the first item with these words
            slots[slot] = item
        else:
            copies += 1
            characters += words.characters_before[stop] - words.characters_before[start]
    return copies, characters


@compiled_inner
def _count_repeated_characters(
    repeated_count: int, words: WordSpans, scratch: Scratch, counts: NDArray[np.int64]
) -> None:
    """Count characters in repeated n-grams of 2 to 10 words, one length at a time."""
    characters = words.characters_before
    # An n-gram repeats only if both its (n-1)-grams do, so each round examines only the few words where one repeats.
    for n in range(2, _MAX_GRAM_WORDS + 1):
        repeated_count = _compute_gram_keys(repeated_count, scratch)
        copied = _assign_gram_ids(n, repeated_count, words, scratch)
        repeated_count, top_count, top = _keep_repeated(repeated_count, scratch)
        if n > _MAX_TOP_GRAM_WORDS:
            counts[TextCount.DUPLICATE_5_GRAMS + n - 5] = copied
        elif top_count > 1:
            counts[TextCount.TOP_2_GRAM + n - 2] = top_count * (characters[top + n] - characters[top])
        if repeated_count == 0:
            break


@compiled_inner
def _compute_gram_keys(repeated_count: int, scratch: Scratch) -> int:
    """Compute the keys of the n-grams that may repeat; return their number.

    Only the words at which these n-grams begin remain in `scratch.repeat_starts`.
    """
    gram_ids, repeat_starts = scratch.gram_ids, scratch.repeat_starts
    kept = 0
    for index in range(to_index(repeated_count)):
        word = to_index(repeat_starts[index])
        # The n-gram at `word` is the (n-1)-gram there and the one at the next word. `gram_ids` still has both of these,
        # because words ascend and only entries before `word` are overwritten.
        first, second = gram_ids[word], gram_ids[word + _ONE]
        # The two ids, below 2**31, fill the halves of the key, so different n-grams have different keys. (If `second`
        # is -1, the key is wrong, but this entry is not kept.)
        scratch.keys[word] = _mix_bits(to_index(first) << _HALF_BITS | to_index(second))
        # Write without a branch; the next word overwrites this entry unless the second (n-1)-gram repeats.
        repeat_starts[to_index(kept)] = word
        kept += second >= 0
        # `second >> 31` is -1 (all bits set) for a negative second, otherwise 0; so the OR gives -1 or `first`.
        gram_ids[word] = first | second >> 31
    return kept


@compiled_inner
def _assign_gram_ids(n: int, repeated_count: int, words: WordSpans, scratch: Scratch) -> int:
    """Identify and count n-grams; return the number of characters in copies."""
    characters, counts = words.characters_before, scratch.counts
    mask = _clear_slots(scratch.slots, repeated_count)
    covered = copied = 0  # word after the last copy, characters in copies so far
    for index in range(to_index(repeated_count)):
        word = to_int64(scratch.repeat_starts[index])
        key = scratch.keys[to_index(word)]
        first = _find_or_insert(word, key, key, mask, scratch)
        scratch.gram_ids[to_index(word)] = first
        counts[to_index(word)] = 0
        counts[to_index(first)] += 1
        is_copy = first != word
        # A copy may overlap the last one: add only the characters from the first word that is not covered yet.
        copied += is_copy * to_int64(characters[to_index(word + n)] - characters[to_index(max(word, covered))])
        covered = word + n if is_copy else covered
    return copied


@compiled_inner
def _keep_repeated(repeated_count: int, scratch: Scratch) -> tuple[int, int, int]:
    """Remove from `repeat_starts` the words at which no repeated n-gram begins.

    Set their `gram_ids` to -1.

    Returns:
        Number of kept words; number of occurrences of the most frequent n-gram; first word of this n-gram's first
        occurrence, or -1 if `repeated_count` is 0.
    """
    gram_ids, repeat_starts = scratch.gram_ids, scratch.repeat_starts
    top_count = kept = 0
    top = -1
    for index in range(to_index(repeated_count)):
        word = repeat_starts[index]
        first = gram_ids[to_index(word)]
        count = to_int64(scratch.counts[to_index(first)])
        if count > top_count:
            top_count, top = count, to_int64(first)
        # As in `_compute_gram_keys`: the next word overwrites the entry unless this one is kept. `count > 1` minus 1 is
        # 0 for a kept word, otherwise -1 (all bits set), so the OR gives `first` or -1.
        repeat_starts[to_index(kept)] = word
        kept += count > 1
        gram_ids[to_index(word)] = first | (np.int32(count > 1) - np.int32(1))
    return kept, top_count, top
