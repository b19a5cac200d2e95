"""Flat tables of hashed words and phrases, for searches in compiled kernels.

A table takes 12 bytes per entry; a set of strings takes about 100. Hashes have 64 bits (FNV-1a). In a table of a
million entries, the probability that a word outside the table has the hash of an entry is below 1 in 10**13.

A word is a run of letters, digits, marks and underscores. In scripts without spaces, such as Chinese and Thai, every
character with its marks is a word, so that a listed word is found inside a run. If two words touch in a listed phrase,
they must touch in a text, too. If they are separated in the phrase, any characters that are not part of a word may
separate them in a text.
"""

import functools
import unicodedata
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import always_inline, compiled, compiled_inner
from pipeline_assets.corpus.filters.characters import WORD, character_classes, read_class_bits
from pipeline_assets.corpus.filters.text_batch import TextBatch

FNV_OFFSET, _FNV_PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)
_COMBINING_MARK, _SINGLE_WORD = 256, 512  # class bits, in addition to those of `characters`
# Blocks of Thai and Lao, Myanmar, Khmer, Japanese, Chinese with its extensions, and half-width kana. They include 々,
# 〇, kana marks and bopomofo, but no Hangul.
_UNSPACED_BLOCKS = (
    *((0x0E00, 0x0F00), (0x1000, 0x10A0), (0x1780, 0x1800), (0x3000, 0x3130), (0x3190, 0x3200)),
    *((0x3400, 0x4DC0), (0x4E00, 0xA000), (0xA9E0, 0xAA00), (0xAA60, 0xAA80), (0xF900, 0xFB00), (0xFF66, 0xFFA0)),
    *((0x1B000, 0x1B170), (0x20000, 0x40000)),
)


class HashedWords(NamedTuple):
    """Ascending hashes of words, and a value for each hash; shapes are (hashes,)."""

    hashes: NDArray[np.uint64]
    values: NDArray[np.int32]


def build_table(hashes: NDArray[np.uint64], values: NDArray[np.int32]) -> HashedWords:
    """Build the table of hashes; a hash with several values gets the largest one."""
    order = np.argsort(-values, kind="stable")
    unique, first = np.unique(hashes[order], return_index=True)
    return HashedWords(unique, values[order][first])


@compiled_inner
def find_value(table: HashedWords, word_hash: np.uint64) -> int:
    """Return the value of a hash, or -1 if the table does not have it."""
    position = np.searchsorted(table.hashes, word_hash)
    is_found = position < len(table.hashes) and table.hashes[position] == word_hash
    return np.int64(table.values[position]) if is_found else -1  # type: ignore[return-value]


@always_inline
def extend_hash(prefix_hash: np.uint64, byte: int) -> np.uint64:
    """Extend the hash of a string by one more byte, and return the new hash."""
    return (prefix_hash ^ np.uint64(byte)) * _FNV_PRIME


@compiled
def hash_strings(strings: TextBatch) -> NDArray[np.uint64]:
    """Return the hash of each string of a batch, shape (strings,)."""
    text, offsets = strings
    hashes = np.full(len(offsets) - 1, FNV_OFFSET, np.uint64)
    for number in range(len(hashes)):
        for at in range(offsets[number], offsets[number + 1]):
            hashes[number] = extend_hash(hashes[number], text[at])
    return hashes


@functools.cache
def word_classes() -> NDArray[np.uint16]:
    """Build the table of `character_classes` with this module's definition of words.

    Marks are parts of words, and characters of scripts without spaces get the bit `_SINGLE_WORD`.
    """
    classes = character_classes().copy()
    marks = [code for code in range(len(classes)) if unicodedata.category(chr(code))[0] == "M"]
    classes[marks] |= WORD | _COMBINING_MARK
    for start, stop in _UNSPACED_BLOCKS:
        block = classes[start:stop]
        block[block & (WORD | _COMBINING_MARK) == WORD] |= _SINGLE_WORD
    return classes


@compiled_inner
def _next_word(text: NDArray[np.uint8], position: int, end: int, classes: NDArray[np.uint16]) -> tuple[int, int]:
    """Return start and end of the next word; both are equal if no word follows."""
    bits, width = read_class_bits(text, position, classes)  # eight zeros follow the last text
    while position < end and not bits & WORD:
        position += width
        bits, width = read_class_bits(text, position, classes)
    start, is_alone = position, bits & _SINGLE_WORD
    while position < end:
        position += width
        bits, width = read_class_bits(text, position, classes)
        if not bits & WORD or bits & _SINGLE_WORD or (is_alone and not bits & _COMBINING_MARK):
            break
    return start, min(position, end)


@compiled
def hash_phrase_prefixes(
    phrases: TextBatch, classes: NDArray[np.uint16]
) -> tuple[NDArray[np.uint64], NDArray[np.int32], NDArray[np.int64]]:
    """Hash the prefixes of each phrase: its first word, its first two, and so on.

    Returns:
        Three arrays: the hashes of all prefixes, phrase after phrase; 1 for each prefix that is a whole phrase, else 0;
        and the number of words of each phrase.
    """
    text, offsets = phrases
    hashes, is_whole = np.empty(len(text), np.uint64), np.zeros(len(text), np.int32)
    words, size = np.zeros(len(offsets) - 1, np.int64), 0
    for number in range(len(words)):
        state, end = FNV_OFFSET, offsets[number + 1]
        start, stop = _next_word(text, offsets[number], end, classes)
        while start < stop:
            for at in range(start, stop):
                state = extend_hash(state, text[at])
            hashes[size], last = state, stop
            start, stop = _next_word(text, stop, end, classes)
            state = extend_hash(state, start > last)  # no word has the bytes 0 (joined) and 1 (separated)
            is_whole[size] = start == stop
            size += 1
            words[number] += 1
    return hashes[:size], is_whole[:size], words


@compiled
def find_first_phrases(texts: TextBatch, classes: NDArray[np.uint16], phrases: HashedWords) -> NDArray[np.int64]:
    """Return start and end of the first listed phrase in each text, shape (texts, 2).

    Start and end are positions in `texts.text`, or -1 without a listed phrase. If several phrases begin at the same
    word, the shortest is returned. Build `phrases` by `build_table` from the first two results of
    `hash_phrase_prefixes`.
    """
    text, offsets = texts
    spans = np.full((len(offsets) - 1, 2), -1, np.int64)
    for number in range(len(spans)):
        end = offsets[number + 1]
        first, after = _next_word(text, offsets[number], end, classes)
        while first < after and spans[number, 0] < 0:
            start, stop, state, value = first, after, FNV_OFFSET, 0
            while start < stop and value == 0:  # 0: longer phrases begin with these words
                for at in range(start, stop):
                    state = extend_hash(state, text[at])
                value, last = find_value(phrases, state), stop
                if value > 0:
                    spans[number] = first, stop
                elif value == 0:
                    start, stop = _next_word(text, stop, end, classes)
                    state = extend_hash(state, start > last)
            first, after = _next_word(text, after, end, classes)
    return spans
