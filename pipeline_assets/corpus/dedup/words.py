r"""Normalised text, as deduplication compares it: lower-case words, one blank between two.

A word is a longest run of `\w` of a regular expression: letters and digits of every script, and the underscore. Each
character is lowered by itself, to the first character of its `str.lower`: so `İ` is `i`, and every `Σ` is `σ`. Marks
that combine are no `\w`, and writing without blanks is one long word. In plain Python:

    " ".join(re.findall(r"\w+", text)) with each character c as c.lower()[0]

A word's hash is of its UTF-8: its length, then eight bytes at a time (the last filled up with zeros), each step
`h = mixed(h ^ eight_bytes)`.
"""

import functools
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import compiled, inner, unaligned_u64_view
from pipeline_assets.corpus.filters.characters import decode_longer, to_int64

BLANK = 0x20
POLYNOMIAL = np.uint64(0x9E3779B97F4A7C15)  # several words are hashed by the polynomial of theirs in this, modulo 2**64
_CODE_POINTS = 0x40000  # above it Unicode has no letter or digit, only private use
_PADDING = bytes(16)  # compiled code reads a few bytes beyond the last document
_ODD, _HALF, _SHIFT = np.uint64(0xD6E8FEB86659FD93), np.uint64(32), np.uint64(29)
_ALL, _64 = np.uint64(2**64 - 1), np.uint64(64)


Lowered = tuple[NDArray[np.uint8], NDArray[np.uint32]]


class NormalizedBatch(NamedTuple):
    """Documents normalised, one after the other.

    Attributes:
        text: their UTF-8, uint8.
        starts, stops: of each document in `text`, int64, (documents,).
        word_hashes: of all their words, uint64.
        first_words: of each document in `word_hashes`, and after the last the number of words; int64.
    """

    text: NDArray[np.uint8]
    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    word_hashes: NDArray[np.uint64]
    first_words: NDArray[np.int64]

    def words(self) -> NDArray[np.int64]:
        """How many words each document has."""
        return np.diff(self.first_words)


@functools.cache
def lowered() -> Lowered:
    """What each character is in normalised text, by this Python's Unicode data; a blank where it is no word's.

    Returns:
        of each byte, shape (256,), 0 where it is one of a longer character; of each code point, shape (0x40000,), its
        UTF-8, the first byte lowest.
    """
    characters = np.arange(_CODE_POINTS, dtype="<u4").tobytes().decode("utf-32-le", "surrogatepass")
    characters = characters.replace("İ", "i").replace("Σ", "σ")  # no other grows, or is lowered by what is beside it
    words = re.sub(r"\W+", lambda gap: " " * len(gap[0]), characters).lower()
    of_byte, of_code_point = np.zeros(256, np.uint8), np.zeros(_CODE_POINTS, np.uint32)
    utf8 = np.frombuffer(words.encode(), np.uint8)
    starts = np.flatnonzero(utf8 & 0xC0 != 0x80)
    widths = np.diff(starts, append=len(utf8))
    for byte in range(4):
        is_longer = widths > byte
        of_code_point[is_longer] |= utf8[starts[is_longer] + byte].astype(np.uint32) << np.uint32(8 * byte)
    of_byte[:128] = of_code_point[:128]
    return of_byte, of_code_point


def normalize(texts: Sequence[bytes]) -> NormalizedBatch:
    """The documents, given as UTF-8, normalised."""
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    text = np.frombuffer(b"".join([*texts, _PADDING]), np.uint8)
    room = len(text) + len(text) // 2 + len(texts)  # two bytes become three at most, and a blank ends each document
    starts, stops, first_words = (np.empty(len(texts) + more, np.int64) for more in (0, 0, 1))
    batch = NormalizedBatch(np.empty(room, np.uint8), starts, stops, np.empty(0, np.uint64), first_words)
    words = np.empty(len(text) // 2 + len(texts) + 2, np.int64)
    number = _normalize(text, lengths, lowered(), words, batch)
    hashes = np.empty(number, np.uint64)
    _hash_words(unaligned_u64_view(batch.text), words[: number + 1], hashes)
    return batch._replace(word_hashes=hashes)


@compiled
def _normalize(
    text: NDArray[np.uint8],
    lengths: NDArray[np.int64],
    tables: Lowered,
    words: NDArray[np.int64],
    batch: NormalizedBatch,
) -> int:
    """Fills all but the hashes; the number of words. `words` begin where they do in the new text, a blank after each.

    A character is written, and whether it stays is told by how far the next one goes: a branch that guesses the end of
    each word wrong would cost more than all else.
    """
    of_byte, of_code_point = tables
    normalized, starts, stops, _, first_words = batch
    number = out = at = 0
    for document in range(len(lengths)):
        end = at + lengths[document]
        starts[document], first_words[document] = out, number
        before = 0
        while at < end:
            character = to_int64(of_byte[text[at]])
            if character:
                normalized[out] = character
                is_word = to_int64(character != BLANK)
                words[number] = out
                number += is_word & ~before
                out += is_word | before
                before = is_word
                at += 1
                continue
            code_point, width = decode_longer(text, at)
            at += width
            low = to_int64(of_code_point[code_point]) if code_point < _CODE_POINTS else BLANK
            is_word = to_int64(low != BLANK)
            words[number] = out
            number += is_word & ~before
            normalized[out] = low
            while low > 0xFF:
                low >>= 8
                out += 1
                normalized[out] = low
            out += is_word | before
            before = is_word
        if before:
            normalized[out] = BLANK
            out += 1
        stops[document] = max(out - 1, starts[document])
    first_words[len(lengths)] = number
    words[number] = out
    return number


@inner
def mixed(key: np.uint64) -> np.uint64:
    """A bijection of 64 bits that leaves none of them where it was."""
    key = (key ^ (key >> _HALF)) * _ODD
    key = (key ^ (key >> _SHIFT)) * _ODD
    return key ^ (key >> _HALF)


@compiled
def _hash_words(eights: NDArray[np.uint64], words: NDArray[np.int64], hashes: NDArray[np.uint64]) -> None:
    """The hash of each word, from where words begin and after the last end; between two is one blank."""
    for word in range(len(words) - 1):
        at = words[word]
        size = words[word + 1] - at - 1
        key = np.uint64(size)
        while size > 8:
            key = mixed(key ^ eights[at])
            at += 8
            size -= 8
        hashes[word] = mixed(key ^ (eights[at] & (_ALL >> (_64 - np.uint64(8 * size)))))
