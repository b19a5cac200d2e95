r"""Normalized text, the form in which deduplication compares documents.

Normalized text is lower-case words with one space between them. A word is a maximal run of `\w` in the sense of regular
expressions: letters and digits of every script, and the underscore. Each character becomes the first character of its
own lower-case form, so `İ` becomes `i` and every `Σ` becomes `σ`. Combining marks are not `\w`, and text without spaces
between words is one long word. In plain Python:

    " ".join(re.findall(r"\w+", text)) with each character c as c.lower()[0]

The hash h of a word is initially the word's length in UTF-8 bytes. The bytes of the word, padded with zeros, are then
mixed into h, eight at a time: `h = mix_bits(h ^ u64_view)`.
"""

import functools
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import compiled, compiled_inner, unaligned_u64_view
from pipeline_assets.corpus.filters.characters import decode_multibyte, to_int64

SPACE_BYTE = 0x20
POLYNOMIAL = np.uint64(0x9E3779B97F4A7C15)  # base of the polynomial that hashes several words, modulo 2**64
_CODE_POINT_LIMIT = 0x40000  # Unicode has no letters or digits from here on
_PADDING = bytes(16)  # compiled code reads a few bytes beyond the last document
_MIX_MULTIPLIER, _32, _29 = np.uint64(0xD6E8FEB86659FD93), np.uint64(32), np.uint64(29)
_ALL_BITS, _64 = np.uint64(2**64 - 1), np.uint64(64)
LowercaseTables = tuple[NDArray[np.uint8], NDArray[np.uint32]]


class NormalizedBatch(NamedTuple):
    """Normalized documents, one after the other.

    Attributes:
        text: UTF-8 of all documents, with a space after each word; the bytes after the last space have no meaning.
        starts: Position in `text` of the first byte of each document, shape (documents,).
        stops: Position in `text` after the last word of each document, shape (documents,).
        word_hashes: Hashes of all words, shape (words,).
        first_words: Index in `word_hashes` of each document's first word, then the number of all words; shape
            (documents + 1,).
    """

    text: NDArray[np.uint8]
    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    word_hashes: NDArray[np.uint64]
    first_words: NDArray[np.int64]

    def word_counts(self) -> NDArray[np.int64]:
        """Count the words of each document."""
        return np.diff(self.first_words)


@functools.cache
def lowercase_tables() -> LowercaseTables:
    """Return tables of normalized characters, from the Unicode data of this Python.

    A character that belongs to no word becomes a space.

    Returns:
        Table of shape (256,) that maps ASCII bytes to normalized characters, and other bytes to 0; table of shape
        (0x40000,) that maps code points to the UTF-8 of normalized characters, with the first byte in the lowest bits.
    """
    characters = np.arange(_CODE_POINT_LIMIT, dtype="<u4").tobytes().decode("utf-32-le", "surrogatepass")
    # `lower` of the whole string is `lower` of each character, except that these two become longer or depend on their
    # neighbours.
    characters = characters.replace("İ", "i").replace("Σ", "σ")
    lowered_text = re.sub(r"\W+", lambda gap: " " * len(gap[0]), characters).lower()
    byte_table, code_point_table = np.zeros(256, np.uint8), np.zeros(_CODE_POINT_LIMIT, np.uint32)
    utf8 = np.frombuffer(lowered_text.encode(), np.uint8)
    starts = np.flatnonzero(utf8 & 0xC0 != 0x80)  # each byte begins a character, except continuation bytes 10xxxxxx
    widths = np.diff(starts, append=len(utf8))
    for byte in range(4):  # put byte k of each character into bits 8k to 8k + 7
        is_longer = widths > byte
        code_point_table[is_longer] |= utf8[starts[is_longer] + byte].astype(np.uint32) << np.uint32(8 * byte)
    byte_table[:128] = code_point_table[:128]
    return byte_table, code_point_table


def normalize(texts: Sequence[bytes]) -> NormalizedBatch:
    """Normalize documents in UTF-8, and hash their words."""
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    text = np.frombuffer(b"".join([*texts, _PADDING]), np.uint8)
    # Lowering makes two bytes at most three, and a space ends each document.
    capacity = len(text) + len(text) // 2 + len(texts)
    starts, stops, first_words = (np.empty(len(texts) + extra, np.int64) for extra in (0, 0, 1))
    batch = NormalizedBatch(np.empty(capacity, np.uint8), starts, stops, np.empty(0, np.uint64), first_words)
    word_starts = np.empty(len(text) // 2 + len(texts) + 2, np.int64)
    word_count = _normalize(text, lengths, lowercase_tables(), word_starts, batch)
    hashes = np.empty(word_count, np.uint64)
    _hash_words(unaligned_u64_view(batch.text), word_starts[: word_count + 1], hashes)
    return batch._replace(word_hashes=hashes)


@compiled
def _normalize(
    text: NDArray[np.uint8],
    lengths: NDArray[np.int64],
    tables: LowercaseTables,
    word_starts: NDArray[np.int64],
    batch: NormalizedBatch,
) -> int:
    """Fill all fields of a batch except the hashes, and return the number of words.

    A space follows each word. `word_starts` receives the start of each word in the new text, then the end of the text.
    """
    byte_table, code_point_table = tables
    normalized, starts, stops, _, first_words = batch
    word_count = out = position = 0  # words so far, byte in the new text, byte in the old text
    for document in range(len(lengths)):
        end = position + lengths[document]
        starts[document], first_words[document] = out, word_count
        was_word = 0
        while position < end:
            character = to_int64(byte_table[text[position]])
            if character:  # one byte
                normalized[out] = character
                is_word = to_int64(character != SPACE_BYTE)
                word_starts[word_count] = out
                word_count += is_word & ~was_word  # both are 0 or 1: a word begins where a 0 is followed by a 1
                # Without a branch, whose mispredictions would cost more than the rest of the loop: the next character
                # replaces this one unless `out` advances, for characters of words and the first space after each word.
                out += is_word | was_word
                was_word = is_word
                position += 1
                continue
            code_point, width = decode_multibyte(text, position)
            position += width
            low = to_int64(code_point_table[code_point]) if code_point < _CODE_POINT_LIMIT else SPACE_BYTE
            is_word = to_int64(low != SPACE_BYTE)
            word_starts[word_count] = out
            word_count += is_word & ~was_word
            normalized[out] = low  # the assignment keeps the lowest eight bits: the first byte
            while low > 0xFF:  # shift the next byte down until none is left
                low >>= 8
                out += 1
                normalized[out] = low
            out += is_word | was_word
            was_word = is_word
        if was_word:  # the text ends with a word
            normalized[out] = SPACE_BYTE
            out += 1
        stops[document] = max(out - 1, starts[document])  # without the last space; empty if there are no words
    first_words[len(lengths)] = word_count
    word_starts[word_count] = out
    return word_count


@compiled_inner
def mix_bits(key: np.uint64) -> np.uint64:
    """Mix 64 bits; different keys give different results."""
    # An XOR with a right shift keeps the top bits, which restore the rest; an odd factor has an inverse modulo 2**64.
    key = (key ^ (key >> _32)) * _MIX_MULTIPLIER
    key = (key ^ (key >> _29)) * _MIX_MULTIPLIER
    return key ^ (key >> _32)


@compiled
def _hash_words(u64_view: NDArray[np.uint64], word_starts: NDArray[np.int64], hashes: NDArray[np.uint64]) -> None:
    """Hash all words; word i begins at `word_starts[i]` and ends at the next space.

    `u64_view[i]` has the eight bytes of the text that start at byte i.
    """
    for word in range(len(word_starts) - 1):
        position = word_starts[word]
        size = word_starts[word + 1] - position - 1  # without the space
        key = np.uint64(size)
        while size > 8:
            key = mix_bits(key ^ u64_view[position])
            position += 8
            size -= 8
        # One to eight bytes remain, the lowest of the next eight. A mask of their 8 * size bits clears the others.
        hashes[word] = mix_bits(key ^ (u64_view[position] & (_ALL_BITS >> (_64 - np.uint64(8 * size)))))
