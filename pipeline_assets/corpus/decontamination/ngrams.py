"""Search for n-grams in texts.

The key of an n-gram is a polynomial modulo 2**64 in the odd base `POLYNOMIAL`, with the hashes of the words as
coefficients. So the key of an n-gram's first words can be extended to the key of the n-gram. If two keys are equal, the
words are compared, because different n-grams may have equal keys. The bitmap `NgramTable.beginnings` rules out most
words of a text as the first word of an n-gram, so that few words are looked up in the large table.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.dedup.sorted_runs import is_first_in_group
from pipeline_assets.corpus.dedup.words import POLYNOMIAL, SPACE_BYTE, NormalizedBatch


class Words(NamedTuple):
    """Consecutive words in UTF-8 with a space after each."""

    text: NDArray[np.uint8]
    begins: NDArray[np.int64]  # start of each word in `text`, then the end; shape (words + 1,)
    hashes: NDArray[np.uint64]  # hash of each word, shape (words,)

    def slice(self, first: int, stop: int) -> "Words":
        """Return the words from `first` up to, but not including, `stop`."""
        begins = self.begins[first : stop + 1]
        return Words(self.text[begins[0] : begins[-1]], begins - begins[0], self.hashes[first:stop])

    def keep(self, is_kept: NDArray[np.bool_]) -> "Words":
        """Return the words that the mask `is_kept`, shape (words,), selects."""
        lengths = np.diff(self.begins)
        begins = np.concatenate(([0], np.cumsum(lengths[is_kept])))
        return Words(self.text[np.repeat(is_kept, lengths)], begins, self.hashes[is_kept])


def split_words(batch: NormalizedBatch) -> Words:
    """Return all words of a batch, one document after the other."""
    blanks = np.flatnonzero(batch.text == SPACE_BYTE)[: len(batch.word_hashes)]
    return Words(batch.text, np.concatenate(([0], blanks + 1)), batch.word_hashes)


_32, _6, _12, _63 = np.uint64(32), np.uint64(6), np.uint64(12), np.uint64(63)
_ONE = np.uint64(1)
# Bits per n-gram, up to three of them set. About 1 % of the words at which no n-gram begins pass the bitmap.
_BITS_PER_NGRAM = 16
_MIN_BITS = 1 << 12


class NgramTable(NamedTuple):
    """Distinct n-grams, numbered.

    `beginnings` is a Bloom filter. Its keys are those of the first k words of each n-gram, where k is the number of
    words of the shortest n-gram. Each key sets up to three bits of one uint64; the length of the array is a power of
    two.
    """

    text: NDArray[np.uint8]  # UTF-8 of all words, as in `Words`
    begins: NDArray[np.int64]  # start of each word in `text`, as in `Words`
    first_words: NDArray[np.int64]  # first word of each n-gram, as a position in `begins`
    sizes: NDArray[np.int32]  # number of words of each n-gram
    all_sizes: NDArray[np.int32]  # distinct sizes, ascending
    keys: NDArray[np.uint64]  # of all n-grams, ascending
    by_key: NDArray[np.int64]  # for each entry of `keys`, the number of its n-gram
    beginnings: NDArray[np.uint64]


def number_ngrams(
    words: Words, first_words: NDArray[np.int64], sizes: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Number n-grams from 0; equal n-grams share a number.

    N-gram i has `sizes[i]` words, and begins at the index `first_words[i]` of `words`.

    Returns:
        Number of each n-gram, shape (ngrams,); index of the first n-gram with each number, shape (numbers,).
    """
    keys = ngram_keys(words.hashes, first_words, sizes)
    ngrams, firsts = np.empty(len(first_words), np.int64), np.empty(0, np.int64)
    remaining = np.lexsort((sizes, keys))
    while len(remaining):
        # Group equal keys and sizes; the first n-gram of each group gets a new number.
        is_new = is_first_in_group(keys[remaining], sizes[remaining])
        groups = np.cumsum(is_new) - 1  # number of each row's group, from 0
        first = remaining[is_new]
        is_same = _are_equal(words, first_words[remaining], words, first_words[first][groups], sizes[remaining])
        ngrams[remaining[is_same]] = len(firsts) + groups[is_same]
        # N-grams with the first n-gram's key but different words remain, and are grouped again. Each pass numbers at
        # least the first n-gram of each group, so the loop ends.
        firsts, remaining = np.append(firsts, first), remaining[~is_same]
    return ngrams, firsts


def ngram_keys(hashes: NDArray[np.uint64], starts: NDArray[np.int64], sizes: NDArray[np.int32]) -> NDArray[np.uint64]:
    """Compute the key of each n-gram, shape (ngrams,).

    N-gram i has `sizes[i]` words, and begins at the index `starts[i]` of `hashes`.
    """
    keys = np.zeros(len(starts), np.uint64)
    for word in range(int(sizes.max(initial=0))):  # Horner's rule, for the n-grams that have this word
        has_word = sizes > word
        keys[has_word] = keys[has_word] * POLYNOMIAL + hashes[starts[has_word] + word]
    return keys


def ngram_table(words: Words, first_words: NDArray[np.int64], sizes: NDArray[np.int32]) -> NgramTable:
    """Build a table from the first words and sizes of one or more distinct n-grams."""
    keys = ngram_keys(words.hashes, first_words, sizes)
    by_key = np.argsort(keys)
    all_sizes = np.flatnonzero(np.bincount(sizes)).astype(np.int32)
    # At least `_BITS_PER_NGRAM` bits per n-gram, in a number of uint64 rounded up to a power of two: bit_length(n - 1)
    # is the exponent of the smallest power that is at least n.
    beginnings = np.zeros(1 << (max(_BITS_PER_NGRAM * len(keys), _MIN_BITS) // 64 - 1).bit_length(), np.uint64)
    slots, bits = _bitmap_bits(ngram_keys(words.hashes, first_words, np.full(len(keys), all_sizes[0])), len(beginnings))
    np.bitwise_or.at(beginnings, slots, bits)
    return NgramTable(words.text, words.begins, first_words, sizes, all_sizes, keys[by_key], by_key, beginnings)


def _bitmap_bits(keys: NDArray[np.uint64], slot_count: int) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """Return each key's index in the bitmap, and its three bits as a uint64."""
    # Bits 0–5, 6–11 and 12–17 of a key choose one of 64 bits each. The upper half of the key chooses the uint64:
    # `& (slot_count - 1)` is the remainder modulo `slot_count`, a power of two.
    bits = _ONE << (keys & _63) | _ONE << (keys >> _6 & _63) | _ONE << (keys >> _12 & _63)
    return (keys >> _32).astype(np.int64) & (slot_count - 1), bits


class NgramMatches(NamedTuple):
    """N-grams found in documents, in the order of their first words."""

    first_words: NDArray[np.int64]  # index of each match's first word among the words of all documents
    ngrams: NDArray[np.int64]  # number of each match's n-gram in the table


def propose_ngrams(hashes: NDArray[np.uint64], document_bounds: NDArray[np.int64], table: NgramTable) -> NgramMatches:
    """Find n-grams in documents by keys alone; `verify_ngrams` compares the words.

    `hashes` has the hashes of the words of all documents. `document_bounds` has the index of each document's first
    word, then the count of all words.
    """
    shortest = int(table.all_sizes[0])
    # Key of the `shortest` words from each word on, by Horner's rule for all of them at once.
    keys = np.zeros(max(len(hashes) - shortest + 1, 0), np.uint64)
    for word in range(shortest):
        keys *= POLYNOMIAL
        keys += hashes[word : word + len(keys)]
    # Keep the words where all three bits of the key are set: no bit is in the key but not in the bitmap.
    slots, bits = _bitmap_bits(keys, len(table.beginnings))
    first_words = np.flatnonzero(bits & ~table.beginnings[slots] == 0)
    document_ends = document_bounds[np.searchsorted(document_bounds, first_words, side="right")]
    matched_words, ngrams = [], []
    for size in table.all_sizes.tolist():
        # Sizes ascend: where this size crosses the end of the document, larger ones do too, so the word is dropped.
        fits = first_words + size <= document_ends
        first_words, document_ends = first_words[fits], document_ends[fits]
        keys = ngram_keys(hashes, first_words, np.full(len(first_words), size))
        # Entries low to high - 1 of the table have the key of a first word.
        low, high = (np.searchsorted(table.keys, keys, side) for side in ("left", "right"))
        owners = np.repeat(np.arange(len(first_words)), high - low)
        # Number the matches word after word. The matches of a word end at cumsum(high - low), its table entries at
        # `high`, so match m is entry m + high - cumsum.
        matches = table.by_key[np.arange(len(owners)) + (high - np.cumsum(high - low))[owners]]
        has_size = table.sizes[matches] == size
        matched_words.append(first_words[owners][has_size])
        ngrams.append(matches[has_size])
    in_order = np.argsort(np.concatenate(matched_words), kind="stable")
    return NgramMatches(np.concatenate(matched_words)[in_order], np.concatenate(ngrams)[in_order])


def verify_ngrams(proposed: NgramMatches, words: Words, table: NgramTable) -> NgramMatches:
    """Return the proposed matches whose words equal the words of the n-gram."""
    table_words, sizes = table.first_words[proposed.ngrams], table.sizes[proposed.ngrams]
    is_equal = _are_equal(words, proposed.first_words, table, table_words, sizes)
    return NgramMatches(proposed.first_words[is_equal], proposed.ngrams[is_equal])


def _are_equal(
    words: Words,
    first_words: NDArray[np.int64],
    other_words: Words | NgramTable,
    other_first_words: NDArray[np.int64],
    sizes: NDArray[np.int32],
) -> NDArray[np.bool_]:
    """Return a mask of the equal pairs of word sequences; pair i has `sizes[i]` words."""
    starts, other_starts = words.begins[first_words], other_words.begins[other_first_words]
    lengths = words.begins[first_words + sizes] - starts
    # Compare the bytes only where the lengths are equal.
    is_equal: NDArray[np.bool_] = lengths == other_words.begins[other_first_words + sizes] - other_starts
    text, other_text = words.text.data, other_words.text.data
    for pair in np.flatnonzero(is_equal).tolist():
        start, other, length = int(starts[pair]), int(other_starts[pair]), int(lengths[pair])
        is_equal[pair] = text[start : start + length] == other_text[other : other + length]
    return is_equal
