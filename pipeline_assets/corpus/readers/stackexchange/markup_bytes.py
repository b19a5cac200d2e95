"""Words and names in the bytes of a body, compiled.

A body is followed by the closing quote of its attribute, which stands nowhere in it: no search goes past that, and
PADDING_BYTES after the last one let a comparison do so.
"""

import string

import numpy as np

from pipeline_assets.corpus.compiled import inner
from pipeline_assets.corpus.readers.stackexchange.arrays import Bytes

PADDING_BYTES = 16
NOT_CLEAR = -1
QUOTE, _AMPERSAND, _APOSTROPHE, _Q, _G, _L = b"\"&'qgl"
LONGEST_NAME = 10  # of those that fit a number; `blockquote`
LETTER = np.zeros(256, np.int64)
LETTER[list((string.digits + string.ascii_letters).encode())] = np.arange(1, 63)


def number_of(name: str) -> int:
    """A name of up to LONGEST_NAME letters and digits as `name_at` reads it: six bits a character."""
    number = 0
    for letter in name.encode():
        number = number << 6 | int(LETTER[letter])
    return number


@inner
def name_at(source: Bytes, at: int, to_lower: int) -> tuple[int, int]:
    """(the name that starts there as a number, 0 if it is too long; where it ends).

    Args:
        to_lower: 32 for names in which case has no meaning, else 0.
    """
    number, first = 0, at
    while is_word(source[at]):
        number = number << 6 | LETTER[source[at] | to_lower]
        at += 1
    return number if at - first <= LONGEST_NAME else 0, at


@inner
def is_at(source: Bytes, at: int, word: tuple[int, ...]) -> bool:
    """Whether these bytes stand there."""
    for offset in range(len(word)):  # noqa: SIM110, numba has no all()
        if source[at + offset] != word[offset]:
            return False
    return True


@inner
def find(source: Bytes, at: int, stop: int, word: tuple[int, ...]) -> int:
    """Where a word comes next; `stop`, or the end of the body, if it doesn't come before that."""
    while at < stop and source[at] != QUOTE and not is_at(source, at, word):
        at += 1
    return at


@inner
def end_of_tag(source: Bytes, at: int) -> int:
    """Behind the `&gt;` of a tag; NOT_CLEAR where quotes or brackets don't match."""
    is_quoted = False
    while source[at] != QUOTE:
        byte, following = source[at], source[at + 1]
        if byte == _AMPERSAND:
            if following == _Q:
                is_quoted = not is_quoted
            elif following == _G and not is_quoted:
                return at + 4
            elif following == _L:
                return NOT_CLEAR
        elif byte == _APOSTROPHE and not is_quoted:
            return NOT_CLEAR
        at += 1
    return NOT_CLEAR


@inner
def is_digit(byte: int) -> bool:
    return 48 <= byte <= 57


@inner
def is_word(byte: int) -> bool:
    """A digit or a letter of ASCII."""
    return 48 <= byte <= 57 or 65 <= byte <= 90 or 97 <= byte <= 122
