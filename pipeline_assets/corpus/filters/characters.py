"""Unicode classes of the characters in UTF-8 text, for compiled kernels."""

import functools
import unicodedata

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import always_inline, compiled_inner

# Class bits of a character. Kernels shift them down to 0 or 1: LETTER by 1, SYMBOL by 2, BULLET by 3.
SPACE = 1  # str.isspace
LETTER = 2  # str.isalpha
SYMBOL = 4  # Unicode categories P and S: punctuation, mathematics, currency, emoji
BULLET = 8
WORD = 16  # `\w` of a regular expression
CLOSER = 32  # quotation marks and brackets that may follow the mark that ends a sentence
TERMINAL = 64  # may end a line, according to a recipe
RARE_COUNTED = 128  # hash, dot, ellipsis, line feed

LINE_FEED, HASH_SIGN, DOT = 0x0A, 0x23, 0x2E
# The bullets that HTML lists turn into, and the hyphen and asterisk of plain text.
BULLETS = "•‣◦▪▫■□●○▶–*-"
_STRAIGHT_QUOTES = "\"'"
_CODE_POINT_LIMIT = 0x40000  # from here on Unicode has no letter, number, whitespace, punctuation or symbol


@functools.cache
def character_classes(terminal_punctuation: str = "") -> NDArray[np.uint16]:
    """Return the table of class bits by code point, shape (0x40000,).

    The table is cached, so callers must not change it. The classes are from the Unicode data of this Python; the
    characters of `terminal_punctuation` get the bit TERMINAL.
    """
    bits = _unicode_bits().copy()
    for characters, bit in ((BULLETS, BULLET), ("#.…\n", RARE_COUNTED), (terminal_punctuation, TERMINAL)):
        bits[[ord(character) for character in characters]] |= bit
    return bits


@functools.cache
def _unicode_bits() -> NDArray[np.uint16]:
    return np.fromiter(map(_class_bits, range(_CODE_POINT_LIMIT)), np.uint16, _CODE_POINT_LIMIT)


def _class_bits(code_point: int) -> int:
    character = chr(code_point)
    category = unicodedata.category(character)
    return (
        LETTER * (category[0] == "L")
        | SYMBOL * (category[0] in "PS")
        | CLOSER * (category in ("Pe", "Pf") or character in _STRAIGHT_QUOTES)
        | SPACE * character.isspace()
        | WORD * (character.isalnum() or character == "_")
    )


@compiled_inner
def to_int64(number: np.integer | bool) -> int:
    """Convert a number to int64, so that compiled code computes in signed 64 bits."""
    return np.int64(number)  # type: ignore[return-value]


@compiled_inner
def to_index(number: int | np.integer) -> int:
    """Convert an index to uint64, so that compiled code need not test its sign."""
    return np.uint64(number)  # type: ignore[return-value]


@always_inline
def decode_multibyte(text: NDArray[np.uint8], position: int) -> tuple[int, int]:
    """Return code point and width in bytes of the multibyte character at `position`."""
    # The first byte has the width in its leading ones: 110xxxxx, 1110xxxx or 11110xxx. Every other byte is 10xxxxxx.
    # The x bits, joined from left to right, are the code point: each later byte has six of them (mask 0x3F).
    first, second = to_int64(text[position]), to_int64(text[position + 1] & 0x3F)
    if first < 0xE0:  # 110xxxxx: five bits of its own, before six
        return (first & 0x1F) << 6 | second, 2
    third = to_int64(text[position + 2] & 0x3F)
    if first < 0xF0:  # 1110xxxx: four bits before twelve
        return (first & 0x0F) << 12 | second << 6 | third, 3
    # 11110xxx: three bits before eighteen
    return (first & 0x07) << 18 | second << 12 | third << 6 | to_int64(text[position + 3] & 0x3F), 4


@always_inline
def read_class_bits(text: NDArray[np.uint8], position: int, classes: NDArray[np.uint16]) -> tuple[int, int]:
    """Return class bits and width in bytes of the character that begins at `position`."""
    first = text[to_index(position)]
    if first < 0x80:
        return to_int64(classes[to_index(first)]), 1
    code_point, width = decode_multibyte(text, position)
    return to_int64(classes[code_point]) if code_point < _CODE_POINT_LIMIT else 0, width


@compiled_inner
def previous_character_start(text: NDArray[np.uint8], position: int) -> int:
    """Return the start of the character before `position`, where `position` > 0."""
    position -= 1
    while text[position] & 0xC0 == 0x80:  # continuation bytes are 10xxxxxx
        position -= 1
    return position
