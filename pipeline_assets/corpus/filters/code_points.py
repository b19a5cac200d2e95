"""Classes of characters, as tables that compiled filters look up, and UTF-8 read one character at a time."""

import functools
import unicodedata
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import compiled

SPACE = 1  # str.isspace
LETTER = 2  # str.isalpha
SYMBOL = 4  # Unicode categories P and S: punctuation, mathematics, currency, emoji
BULLET = 8
WORD = 16  # `\w` of a regular expression
CLOSER = 32  # quotation marks and brackets that may follow the mark that ends a sentence
TERMINAL = 64  # ends a line, as a recipe says
COUNTED = 128  # hash, dot, ellipsis
MULTIBYTE = 256  # of a byte: it is no character by itself

# What HTML leaves of list items; the hyphen and the asterisk are those of plain text.
BULLETS = "•‣◦▪▫■□●○▶–*-"
_STRAIGHT_QUOTES = "\"'"
_CLASSED = 0x40000  # above it Unicode has no letter, mark or symbol, only private use


class CharacterClasses(NamedTuple):
    """Bits of each byte, shape (256,), and of each code point below 0x40000; uint16."""

    of_byte: NDArray[np.uint16]
    of_code_point: NDArray[np.uint16]


def character_classes(terminal: str = "") -> CharacterClasses:
    """The classes by this Python's Unicode data, and TERMINAL for the characters that may end a line."""
    bits = _unicode_bits().copy()
    for characters, bit in ((BULLETS, BULLET), ("#.…", COUNTED), (terminal, TERMINAL)):
        bits[[ord(character) for character in characters]] |= bit
    of_byte = bits[:256].copy()
    of_byte[128:] = MULTIBYTE
    return CharacterClasses(of_byte, bits)


@functools.cache
def _unicode_bits() -> NDArray[np.uint16]:
    return np.fromiter(map(_bits, range(_CLASSED)), np.uint16, _CLASSED)


def _bits(code_point: int) -> int:
    character = chr(code_point)
    category = unicodedata.category(character)
    bits = LETTER if category[0] == "L" else 0
    if category[0] in "PS":
        bits |= SYMBOL
    if category in ("Pe", "Pf") or character in _STRAIGHT_QUOTES:
        bits |= CLOSER
    if character.isspace():
        bits |= SPACE
    if character.isalnum() or character == "_":
        bits |= WORD
    return bits


@compiled
def wide(number: np.integer) -> int:
    """The number as int64: compiled code computes in the type of what it reads."""
    return np.int64(number)  # type: ignore[return-value]


@compiled
def read_character(text: NDArray[np.uint8], at: int, of_code_point: NDArray[np.uint16]) -> tuple[int, int]:
    """Bits of the character that begins at `at`, and how many bytes it has."""
    first = wide(text[at])
    if first < 0x80:
        return wide(of_code_point[first]), 1
    if first < 0xE0:
        return wide(of_code_point[(first & 0x1F) << 6 | text[at + 1] & 0x3F]), 2
    second, third = wide(text[at + 1] & 0x3F), wide(text[at + 2] & 0x3F)
    if first < 0xF0:
        return wide(of_code_point[(first & 0x0F) << 12 | second << 6 | third]), 3
    code_point = (first & 0x07) << 18 | second << 12 | third << 6 | text[at + 3] & 0x3F
    return wide(of_code_point[code_point]) if code_point < _CLASSED else 0, 4


@compiled
def character_before(text: NDArray[np.uint8], at: int) -> int:
    """Where the character begins that ends before `at`; there is one."""
    at -= 1
    while text[at] & 0xC0 == 0x80:
        at -= 1
    return at
