"""The characters that references in a body stand for, compiled: escaped for XML, and within that for HTML."""

from html.entities import html5

import numpy as np

from pipeline_assets.corpus.compiled import inner
from pipeline_assets.corpus.readers.stackexchange.arrays import Bytes
from pipeline_assets.corpus.readers.stackexchange.markup_bytes import (
    LONGEST_NAME,
    NOT_CLEAR,
    is_digit,
    name_at,
    number_of,
)

_AMP, _GT, _QUOT = map(tuple, (b"amp;", b"gt;", b"quot;"))
_HASH, _AMPERSAND, _SEMICOLON, _LETTER_X, _LETTER_A, _NINE = b"#&;xA9"
_POINTS_BY_NAME = {
    number_of(name[:-1]): ord(text)
    for name, text in html5.items()
    if name.endswith(";") and len(name) <= LONGEST_NAME + 1 and len(text) == 1 and ord(text) < 0x10000
}
_NAMES = np.array(sorted(_POINTS_BY_NAME), np.int64)
_POINTS = np.array([_POINTS_BY_NAME[name] for name in sorted(_POINTS_BY_NAME)], np.int64)


@inner
def reference(source: Bytes, at: int) -> tuple[int, int]:
    """What an ampersand of the XML begins, but `&lt;`.

    Args:
        at: behind the ampersand.
    Returns:
        (where it ends, its code point, below 0x10000); (…, NOT_CLEAR).
    """
    first = source[at]
    if first == 97:
        return _html_reference(source, at + 4)
    if first == 103:
        return at + 3, 62
    if first == 113:
        return at + 5, 34
    byte = source[at + 2]  # &#xA; &#x9; &#xD;
    return at + 4, 10 if byte == _LETTER_A else 9 if byte == _NINE else 13


@inner
def _html_reference(source: Bytes, at: int) -> tuple[int, int]:
    """What an ampersand of the HTML begins, which may be an ampersand; as `reference`."""
    if source[at] == _HASH:
        return _numeric_reference(source, at + 1)
    name, end = name_at(source, at, 0)
    if end == at:
        return at, _AMPERSAND
    low, high = 0, len(_NAMES)
    while low < high:
        middle = (low + high) // 2
        if _NAMES[middle] < name:
            low = middle + 1
        else:
            high = middle
    if source[end] != _SEMICOLON or low == len(_NAMES) or _NAMES[low] != name:
        return end, NOT_CLEAR
    return end + 1, _POINTS[low]


@inner
def _numeric_reference(source: Bytes, at: int) -> tuple[int, int]:
    base, number = 10, 0
    if source[at] | 32 == _LETTER_X:
        base, at = 16, at + 1
    first = at
    while at - first < 7:
        byte = source[at] | 32
        if is_digit(byte):
            number = number * base + byte - 48
        elif base == 16 and 97 <= byte <= 102:
            number = number * base + byte - 87
        else:
            break
        at += 1
    is_text = 32 <= number < 127 or 160 <= number < 0xD800 or 0xE000 <= number < 0xFDD0 or number == 10
    return at + 1, number if at > first and source[at] == _SEMICOLON and is_text else NOT_CLEAR
