"""A text as characters, words, lines and paragraphs.

Classes of characters are tables that compiled filters look up; UTF-8 is read one character at a time.

A word is a longest run without whitespace, as `str.split` has it. A line ends at a line feed; one without a word is
blank and is no line. A paragraph is a run of lines with no blank one between. So neither CRLF nor indentation matters.
"""

import functools
import unicodedata
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import inner

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


@inner
def wide(number: np.integer) -> int:
    """The number as int64: compiled code computes in the type of what it reads."""
    return np.int64(number)  # type: ignore[return-value]


@inner
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


@inner
def character_before(text: NDArray[np.uint8], at: int) -> int:
    """Where the character begins that ends before `at`; there is one."""
    at -= 1
    while text[at] & 0xC0 == 0x80:
        at -= 1
    return at


LINE_FEED, HASH, DOT = 0x0A, 0x23, 0x2E


class Count(IntEnum):
    """What is counted in a document; thresholds are on one count, or on one per another."""

    CHARACTERS = 0
    ASCII_CHARACTERS = 1
    WORDS = 2
    WORD_CHARACTERS = 3
    SYMBOLS = 4
    ALPHABETIC_WORDS = 5
    HASHES = 6
    ELLIPSES = 7
    LINES = 8
    BULLET_LINES = 9
    ELLIPSIS_LINES = 10
    PARAGRAPHS = 11
    STOP_WORDS = 12
    DUPLICATE_LINES = 13
    DUPLICATE_LINE_CHARACTERS = 14
    DUPLICATE_PARAGRAPHS = 15
    DUPLICATE_PARAGRAPH_CHARACTERS = 16
    TOP_2_GRAM = 17
    TOP_3_GRAM = 18
    TOP_4_GRAM = 19
    DUPLICATE_5_GRAMS = 20
    DUPLICATE_6_GRAMS = 21
    DUPLICATE_7_GRAMS = 22
    DUPLICATE_8_GRAMS = 23
    DUPLICATE_9_GRAMS = 24
    DUPLICATE_10_GRAMS = 25
    BOILERPLATE_LINES = 26


class Words(NamedTuple):
    """Words, lines and paragraphs of one document; int32, with room for the longest.

    Attributes:
        starts, ends: bytes of the document.
        characters: of all words before each word, and after the last of all.
        lines, paragraphs: the first word of each, and after the last the number of words.
    """

    starts: NDArray[np.int32]
    ends: NDArray[np.int32]
    characters: NDArray[np.int32]
    lines: NDArray[np.int32]
    paragraphs: NDArray[np.int32]


def room_for(longest: int) -> Words:
    """Arrays for documents of up to `longest` bytes. Pages that no document fills are never touched."""
    words = longest // 2 + 2
    return Words(*(np.empty(words, np.int32) for _ in Words._fields))


@inner
def find_words(text: NDArray[np.uint8], classes: CharacterClasses, words: Words, counts: NDArray[np.int64]) -> None:
    """Fills starts, ends and characters, and counts what single characters tell. `counts` come as zeros.

    Loops are nested, and nothing is called for a plain character: a call with arrays costs as much as a word.
    """
    of_byte, of_code_point = classes
    starts, ends, characters = words.starts, words.ends, words.characters
    characters[0] = number = symbols = alphabetic = dots = at = 0
    last_dot = -2
    while at < len(text):
        if of_byte[text[at]] & SPACE:
            at += 1
            continue
        start = at
        seen = inside = width = 0
        while at < len(text):
            bits = wide(of_byte[text[at]])
            if bits & (SPACE | MULTIBYTE | COUNTED):
                width = 1
                if bits & MULTIBYTE:
                    bits, width = read_character(text, at, of_code_point)
                if bits & SPACE:
                    break
                if text[at] == DOT:
                    dots = dots + 1 if last_dot == at - 1 else 1
                    last_dot = at
                    counts[Count.ELLIPSES] += dots % 3 == 0
                elif bits & COUNTED:
                    counts[Count.HASHES if text[at] == HASH else Count.ELLIPSES] += 1
                at += width - 1
                inside += width - 1
            seen |= bits
            symbols += bits >> 2 & 1
            at += 1
        if at == start:  # whitespace of several bytes
            at += width
            continue
        starts[number], ends[number] = start, at
        number += 1
        characters[number] = characters[number - 1] + at - start - inside
        alphabetic += seen >> 1 & 1
    counts[Count.WORDS], counts[Count.WORD_CHARACTERS] = number, characters[number]
    counts[Count.SYMBOLS], counts[Count.ALPHABETIC_WORDS] = symbols, alphabetic


@inner
def find_lines(text: NDArray[np.uint8], classes: CharacterClasses, words: Words, counts: NDArray[np.int64]) -> None:
    """Fills lines and paragraphs, from the words and the line feeds between them, and counts them."""
    starts, ends = words.starts, words.ends
    number = wide(counts[Count.WORDS])
    lines = paragraphs = bullets = ellipses = end = 0
    for word in range(number):
        line_feeds = 2 if word == 0 else 0
        for at in range(end, starts[word]):
            line_feeds += text[at] == LINE_FEED
        if line_feeds > 0:
            words.lines[lines] = word
            lines += 1
            ellipses += _ends_in_ellipsis(text, end)
            bullets += read_character(text, starts[word], classes.of_code_point)[0] >> 3 & 1
        if line_feeds > 1:
            words.paragraphs[paragraphs] = word
            paragraphs += 1
        end = ends[word]
    words.lines[lines] = words.paragraphs[paragraphs] = number
    counts[Count.LINES], counts[Count.PARAGRAPHS], counts[Count.BULLET_LINES] = lines, paragraphs, bullets
    counts[Count.ELLIPSIS_LINES] = ellipses + _ends_in_ellipsis(text, end)


@inner
def _ends_in_ellipsis(text: NDArray[np.uint8], end: int) -> bool:
    """Whether the bytes before `end` are three dots or U+2026."""
    if end < 3:
        return False
    a, b, c = text[end - 3], text[end - 2], text[end - 1]
    return bool((a == DOT and b == DOT and c == DOT) or (a == 0xE2 and b == 0x80 and c == 0xA6))


@inner
def count_characters(text: NDArray[np.uint8], counts: NDArray[np.int64]) -> None:
    """Counts all characters, and ASCII ones."""
    ascii_characters = inside = 0
    for byte in text:
        ascii_characters += byte < 0x80
        inside += byte & 0xC0 == 0x80
    counts[Count.ASCII_CHARACTERS], counts[Count.CHARACTERS] = ascii_characters, len(text) - inside
