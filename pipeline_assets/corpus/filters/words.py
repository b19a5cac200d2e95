"""A text as characters, words, lines and paragraphs.

ASCII is read 64 bytes at a time, as bits; of other characters the classes are looked up, one at a time.

A word is a longest run without whitespace, as `str.split` has it. A line ends at a line feed; one without a word is
blank and is no line. A paragraph is a run of lines with no blank one between. So neither CRLF nor indentation matters.
"""

import functools
import unicodedata
from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import inner
from pipeline_assets.corpus.filters.bits import (
    BLOCK,
    HIGHEST,
    NONE,
    ONE,
    below,
    bytes_between,
    bytes_in,
    count_bits,
    first_bit,
    run_through,
)

SPACE = 1  # str.isspace
LETTER = 2  # str.isalpha
SYMBOL = 4  # Unicode categories P and S: punctuation, mathematics, currency, emoji
BULLET = 8
WORD = 16  # `\w` of a regular expression
CLOSER = 32  # quotation marks and brackets that may follow the mark that ends a sentence
TERMINAL = 64  # ends a line, as a recipe says
COUNTED = 128  # hash, dot, ellipsis

# What HTML leaves of list items; the hyphen and the asterisk are those of plain text.
BULLETS = "•‣◦▪▫■□●○▶–*-"
_STRAIGHT_QUOTES = "\"'"
_CLASSED = 0x40000  # above it Unicode has no letter, mark or symbol, only private use


def classes_of_characters(terminal: str = "") -> NDArray[np.uint16]:
    """Bits of each code point below 0x40000: its classes by this Python's Unicode data, and TERMINAL where it may end a
    line.
    """
    bits = _unicode_bits().copy()
    for characters, bit in ((BULLETS, BULLET), ("#.…", COUNTED), (terminal, TERMINAL)):
        bits[[ord(character) for character in characters]] |= bit
    return bits


def byte_ranges(is_in_class: Iterable[bool]) -> NDArray[np.uint8]:
    """The bytes of a class as `bits.bytes_in` takes them, given those of which each is or isn't in it, from 0 on."""
    places = np.flatnonzero(np.fromiter(is_in_class, np.bool_))
    firsts = places[np.diff(places, prepend=-2) > 1]
    lasts = places[np.diff(places, append=257) > 1]
    return np.stack([firsts, lasts - firsts], axis=1).astype(np.uint8)


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
def place(number: int | np.integer) -> int:
    """The number as an index: of an unsigned one compiled code doesn't ask whether it counts from the end."""
    return np.uint64(number)  # type: ignore[return-value]


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


_AT_ONCE = 4  # places that are written without asking whether there are so many
LINE_FEED, HASH, DOT = 0x0A, 0x23, 0x2E
SPACES, _LETTERS, _SYMBOLS = (
    byte_ranges(_bits(character) & bit != 0 for character in range(128)) for bit in (SPACE, LETTER, SYMBOL)
)


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
    words = longest // 2 + 2 + _AT_ONCE
    return Words(*(np.empty(words, np.int32) for _ in Words._fields))


@inner
def find_words(
    text: NDArray[np.uint8],
    begin: int,
    size: int,
    of_code_point: NDArray[np.uint16],
    words: Words,
    counts: NDArray[np.int64],
) -> None:
    """Fills words, lines and paragraphs of a document, and counts them and what their characters tell.

    Args:
        text: 64 bytes beyond the document are read.
        begin, size: bytes before the document, and in it.
        counts: of the document, zeros.
    """
    starts, ends, characters = words.starts, words.ends, words.characters
    begun = ended = seen = symbols = alphabetic = dots = high_bytes = inside_bytes = 0
    last_dot, line, feeds, lines, paragraphs = -2, 0, 2, 1, 1
    characters[0] = words.lines[0] = words.paragraphs[0] = 0
    was_word = letterless = spilled = NONE
    for at in range(0, size + 1, BLOCK):
        first_byte, own, inside = begin + at, below(size - at), NONE
        word = own & ~bytes_in(text, first_byte, SPACES)
        letters = word & bytes_in(text, first_byte, _LETTERS)
        high = word & bytes_between(text, first_byte, 0x80, 0x7F)
        if high:
            inside = word & bytes_between(text, first_byte, 0x80, 0x3F)
            high_bytes += count_bits(high)
            inside_bytes += count_bits(inside)
            word &= ~spilled
            spilled = NONE
            high &= ~inside
            while high:
                bit = first_bit(high)
                high &= high - ONE
                bits, width = read_character(text, first_byte + bit, of_code_point)
                if bits & SPACE:
                    word &= ~(below(width) << np.uint64(bit))
                    spilled = below(width) >> ONE >> np.uint64(BLOCK - 1 - bit)
                letters |= np.uint64(bits >> 1 & 1) << np.uint64(bit)
                symbols += bits >> 2 & 1
                counts[Count.ELLIPSES] += bits & COUNTED != 0
        symbols += count_bits(word & bytes_in(text, first_byte, _SYMBOLS))
        counts[Count.HASHES] += count_bits(word & bytes_between(text, first_byte, HASH, 0))
        dotted = word & bytes_between(text, first_byte, DOT, 0)
        if dotted & (dotted << ONE | np.uint64(last_dot == at - 1)):
            while dotted:
                dot = at + first_bit(dotted)
                dotted &= dotted - ONE
                dots = dots + 1 if last_dot == dot - 1 else 1
                last_dot = dot
                counts[Count.ELLIPSES] += dots % 3 == 0
        elif dotted >> HIGHEST:
            dots, last_dot = 1, at + BLOCK - 1
        before = word << ONE | was_word
        was_word = word >> HIGHEST
        start, end, character = word & ~before, before & ~word, word & ~inside
        reached, letterless = run_through(word & ~letters, start, letterless)
        alphabetic += count_bits(reached & letters)
        fed = own & bytes_between(text, first_byte, LINE_FEED, 0)
        while fed:
            next_word = begun + count_bits(start & below(first_bit(fed)))
            fed &= fed - ONE
            if next_word > line:
                words.lines[lines] = line = next_word
                lines += 1
                feeds = 0
            feeds += 1
            if feeds == 2:
                words.paragraphs[paragraphs] = line
                paragraphs += 1
        begins, stops = count_bits(start), count_bits(end)
        for first in range(0, begins, _AT_ONCE):
            for one in range(_AT_ONCE):
                starts[place(begun + first + one)] = at + first_bit(start)
                start &= start - ONE
        begun += begins
        for first in range(0, stops, _AT_ONCE):
            for one in range(_AT_ONCE):
                bit = first_bit(end)
                end &= end - ONE
                ends[place(ended + first + one)] = at + bit
                characters[place(ended + first + one + 1)] = seen + count_bits(character & below(bit))
        ended += stops
        seen += count_bits(character)
    lines -= words.lines[lines - 1] == begun  # what follows the last line feed
    paragraphs -= words.paragraphs[paragraphs - 1] == begun
    words.lines[lines] = words.paragraphs[paragraphs] = begun
    counts[Count.CHARACTERS], counts[Count.ASCII_CHARACTERS] = size - inside_bytes, size - high_bytes
    counts[Count.WORDS], counts[Count.WORD_CHARACTERS] = begun, seen
    counts[Count.SYMBOLS], counts[Count.ALPHABETIC_WORDS] = symbols, alphabetic
    counts[Count.LINES], counts[Count.PARAGRAPHS] = lines, paragraphs
    for number in range(lines):
        first, last = words.lines[number], words.lines[number + 1] - 1
        counts[Count.BULLET_LINES] += read_character(text, begin + starts[first], of_code_point)[0] >> 3 & 1
        counts[Count.ELLIPSIS_LINES] += _is_ellipsis(text, begin + starts[last], begin + ends[last])


@inner
def _is_ellipsis(text: NDArray[np.uint8], start: int, end: int) -> bool:
    """Whether the last bytes of a word are three dots or U+2026."""
    if end - start < 3:
        return False
    a, b, c = text[end - 3], text[end - 2], text[end - 1]
    return bool((a == DOT and b == DOT and c == DOT) or (a == 0xE2 and b == 0x80 and c == 0xA6))
