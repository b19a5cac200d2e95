"""A text as characters, words, lines and paragraphs.

A word is a longest run without whitespace, as `str.split` has it. A line ends at a line feed; one without a word is
blank and is no line. A paragraph is a run of lines with no blank one between. So neither CRLF nor indentation matters.
"""

import functools
import unicodedata
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import always_inline, inner

SPACE = 1  # str.isspace
LETTER = 2  # str.isalpha
SYMBOL = 4  # Unicode categories P and S: punctuation, mathematics, currency, emoji
BULLET = 8
WORD = 16  # `\w` of a regular expression
CLOSER = 32  # quotation marks and brackets that may follow the mark that ends a sentence
TERMINAL = 64  # ends a line, as a recipe says
COUNTED = 128  # hash, dot, ellipsis, line feed

# What HTML leaves of list items; the hyphen and the asterisk are those of plain text.
BULLETS = "•‣◦▪▫■□●○▶–*-"
_STRAIGHT_QUOTES = "\"'"
_CLASSED = 0x40000  # above it Unicode has no letter, mark or symbol, only private use


def classes_of_characters(terminal: str = "") -> NDArray[np.uint16]:
    """Bits of each code point below 0x40000: its classes by this Python's Unicode data, and TERMINAL where it may end a
    line.
    """
    bits = _unicode_bits().copy()
    for characters, bit in ((BULLETS, BULLET), ("#.…\n", COUNTED), (terminal, TERMINAL)):
        bits[[ord(character) for character in characters]] |= bit
    return bits


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
def to_int64(number: np.integer | bool) -> int:
    """The number as int64: compiled code computes in the type of what it reads."""
    return np.int64(number)  # type: ignore[return-value]


@inner
def to_index(number: int | np.integer) -> int:
    """The number as an index: of an unsigned one compiled code doesn't ask whether it counts from the end."""
    return np.uint64(number)  # type: ignore[return-value]


@always_inline
def decode_longer(text: NDArray[np.uint8], at: int) -> tuple[int, int]:
    """The code point of a character of two bytes or more that begins at `at`, and how many bytes it has."""
    first, second = to_int64(text[at]), to_int64(text[at + 1] & 0x3F)
    if first < 0xE0:
        return (first & 0x1F) << 6 | second, 2
    third = to_int64(text[at + 2] & 0x3F)
    if first < 0xF0:
        return (first & 0x0F) << 12 | second << 6 | third, 3
    return (first & 0x07) << 18 | second << 12 | third << 6 | to_int64(text[at + 3] & 0x3F), 4


@always_inline
def read_character(text: NDArray[np.uint8], at: int, of_code_point: NDArray[np.uint16]) -> tuple[int, int]:
    """Bits of the character that begins at `at`, and how many bytes it has."""
    first = text[to_index(at)]
    if first < 0x80:
        return to_int64(of_code_point[to_index(first)]), 1
    code_point, width = decode_longer(text, at)
    return to_int64(of_code_point[code_point]) if code_point < _CLASSED else 0, width


@inner
def character_before(text: NDArray[np.uint8], at: int) -> int:
    """Where the character begins that ends before `at`; there is one."""
    at -= 1
    while text[at] & 0xC0 == 0x80:
        at -= 1
    return at


LINE_FEED, HASH, DOT = 0x0A, 0x23, 0x2E
_THREE_DOTS, _ELLIPSIS = (int.from_bytes(mark.encode()) for mark in ("...", "…"))


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


class WordSpans(NamedTuple):
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


def allocate_spans(longest: int) -> WordSpans:
    """Arrays for documents of up to `longest` bytes. Pages that no document fills are never touched."""
    words = longest // 2 + 2
    return WordSpans(*(np.empty(words, np.int32) for _ in WordSpans._fields))


@inner
def find_words(
    text: NDArray[np.uint8],
    begin: int,
    size: int,
    of_code_point: NDArray[np.uint16],
    words: WordSpans,
    counts: NDArray[np.int64],
) -> None:
    """Fills words, lines and paragraphs of a document, and counts them and what their characters tell.

    Where a word may begin or end is written at each character, and counted where one does: a processor can't guess how
    long words are, and a wrong guess takes longer than to write.

    Args:
        begin, size: bytes before the document, and in it.
        counts: of the document, zeros.
    """
    starts, ends, characters = words.starts, words.ends, words.characters
    at = begun = ended = high = inside = symbols = alphabetic = has_letter = seen = line = dots = 0
    is_space, last_dot, feeds, lines, paragraphs = 1, -2, 2, 1, 1
    words.lines[0] = words.paragraphs[0] = 0
    while at < size:
        was_space, byte, width = is_space, text[to_index(begin + at)], 1
        bits = to_int64(of_code_point[to_index(byte)])
        if byte >= 0x80:
            bits, width = read_character(text, begin + at, of_code_point)
            high += width
            inside += width - 1
        is_space, is_letter = bits & SPACE, bits >> 1 & 1
        starts[to_index(begun)], ends[to_index(ended)], characters[to_index(begun)] = at, at, seen
        begun += was_space & ~is_space
        ended += is_space & ~was_space
        seen += is_space ^ 1
        alphabetic += is_letter & ~has_letter
        has_letter = (has_letter | is_letter) & ~is_space
        symbols += bits >> 2 & 1
        if bits & COUNTED:
            if byte == LINE_FEED:
                if begun > line:
                    words.lines[lines] = line = begun
                    lines += 1
                    feeds = 0
                feeds += 1
                if feeds == 2:
                    words.paragraphs[paragraphs] = line
                    paragraphs += 1
            elif byte == DOT:
                dots = dots + 1 if last_dot == at - 1 else 1
                last_dot = at
                counts[Count.ELLIPSES] += dots % 3 == 0
            else:
                counts[Count.HASHES if byte == HASH else Count.ELLIPSES] += 1
        at += width
    ends[ended] = size
    characters[begun] = seen
    lines -= words.lines[lines - 1] == begun  # what follows the last line feed
    paragraphs -= words.paragraphs[paragraphs - 1] == begun
    words.lines[lines] = words.paragraphs[paragraphs] = begun
    counts[Count.CHARACTERS], counts[Count.ASCII_CHARACTERS] = size - inside, size - high
    counts[Count.WORDS], counts[Count.WORD_CHARACTERS], counts[Count.SYMBOLS] = begun, seen, symbols
    counts[Count.ALPHABETIC_WORDS], counts[Count.LINES], counts[Count.PARAGRAPHS] = alphabetic, lines, paragraphs
    for item in range(lines):
        first, last = words.lines[item], words.lines[item + 1] - 1
        counts[Count.BULLET_LINES] += read_character(text, begin + starts[first], of_code_point)[0] >> 3 & 1
        if ends[last] - starts[last] >= 3:
            end = begin + ends[last]
            tail = to_int64(text[end - 3]) << 16 | to_int64(text[end - 2]) << 8 | to_int64(text[end - 1])
            counts[Count.ELLIPSIS_LINES] += tail in (_THREE_DOTS, _ELLIPSIS)
