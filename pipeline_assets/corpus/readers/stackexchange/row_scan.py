"""Finds the rows of a Posts.xml, compiled: an XML parser for what the dumps are made of, and nothing else.

Between `<posts>` and `</posts>` stand empty elements `<row … />` and white space. A row's attributes are checked as XML
1.0 asks: names, quotes, references, no name twice, no `<` and no forbidden character in a value. What else XML allows
there (comments, CDATA, other elements, entities of a DTD) no dump has: it ends the scan.
"""

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import compiled, inner
from pipeline_assets.corpus.readers.stackexchange.arrays import Bytes, Integers
from pipeline_assets.corpus.readers.stackexchange.eight_marks import (
    Eights,
    controls,
    eight_times,
    first_marked,
    marks_of,
    zeros,
)

MORE, FULL, END, NO_ROW, BROKEN = range(5)
START, STOP, POST_TYPE, POST_ID, PARENT_ID, STATE, COLUMNS = range(7)
AS_DUMPED, OTHERWISE, FORBIDDEN, NOT_UTF8 = range(4)
NO_NUMBER = -1
Hashes = NDArray[np.uint64]
PADDING = bytes(16)
_NO_REFERENCE = -1
_LONGEST_REFERENCE = 14
_MOST_ATTRIBUTES = 64
_SPACE, _QUOTE, _HASH, _AMPERSAND, _APOSTROPHE, _SLASH, _LESS, _EQUALS, _GREATER = b" \"#&'/<=>"


def hash_of_name(name: bytes) -> int:
    """FNV-1a, 64 bits, as the scans compute it."""
    value = 0xCBF29CE484222325
    for byte in name:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


HASH_START, HASH_FACTOR = np.uint64(hash_of_name(b"")), np.uint64(0x100000001B3)
_EIGHT_LESS, _EIGHT_AMPERSANDS, _EIGHT_APOSTROPHES = map(eight_times, b"<&'")
_EIGHT_FOURS = eight_times(_QUOTE ^ _AMPERSAND)  # the bit in which these two differ
_TYPE_NAME, _ID_NAME, _PARENT_NAME = (np.uint64(hash_of_name(name)) for name in (b"PostTypeId", b"Id", b"ParentId"))


@compiled
def scan_rows(data: Bytes, eights: Eights, at: int, rows: Integers) -> tuple[int, int, int]:
    """Rows from a position on.

    Args:
        data: uint8, with PADDING at the end.
        eights: `eight_bytes_at_each` byte of the data.
        at: where to begin, between rows.
        rows: int64, shape (any, COLUMNS), is filled: START and STOP of the attributes in `data`, from the first name to
            the last quote; POST_TYPE, POST_ID and PARENT_ID, NO_NUMBER where there is none; STATE: AS_DUMPED, that is
            `Name="value"` with a space between, escaped as the dumps do; OTHERWISE; FORBIDDEN: it holds a character
            that XML doesn't have; NOT_UTF8.
    Returns:
        (rows found, where the scan ended, why). MORE: the data end there, before a row or in one that starts there;
        FULL: `rows` are; END: `</posts` comes; NO_ROW: something else comes; BROKEN: there a row stops to be one.
    """
    size, count = len(data) - len(PADDING), 0
    names = np.empty(_MOST_ATTRIBUTES, np.uint64)
    while count < len(rows):
        at = _after_white(data, at)
        if at + 7 > size and (at >= size or data[at] == _LESS):
            return count, at, MORE
        if not (data[at] == _LESS and data[at + 1] == 114 and data[at + 2] == 111 and data[at + 3] == 119):
            is_end = data[at] == _LESS and data[at + 1] == _SLASH
            return count, at, END if is_end else NO_ROW
        end, why = _row(data, eights, at + 4, size, rows[count], names)
        if why != END:
            return count, at if why == MORE else end, why
        at = end
        count += 1
    return count, at, FULL


@inner
def _is_white(byte: int) -> bool:
    return byte == _SPACE or byte == 10 or byte == 13 or byte == 9


@inner
def _after_white(data: Bytes, at: int) -> int:
    while _is_white(data[at]):
        at += 1
    return at


@inner
def _row(data: Bytes, eights: Eights, at: int, size: int, row: Integers, names: Hashes) -> tuple[int, int]:
    """A row from behind its name: (behind it, END); (…, MORE); (where it is broken, BROKEN)."""
    row[START:] = NO_NUMBER
    row[STATE] = AS_DUMPED
    count = 0
    while True:
        first = _after_white(data, at)
        byte = data[first]
        if first + 1 >= size:
            return first, MORE
        if byte == _SLASH and data[first + 1] == _GREATER:
            if count == 0:
                row[START] = row[STOP] = first
            return first + 2, END
        if first == at or count == _MOST_ATTRIBUTES:
            return first, BROKEN
        if count == 0:
            row[START] = first
        elif first - at != 1 or data[at] != _SPACE:
            row[STATE] = max(row[STATE], OTHERWISE)
        at, why = _attribute(data, eights, first, size, row, names, count)
        if why != END:
            return at, why
        row[STOP] = at
        count += 1


@inner
def _attribute(
    data: Bytes, eights: Eights, at: int, size: int, row: Integers, names: Hashes, count: int
) -> tuple[int, int]:
    """One attribute: (behind it, END); as `_row`."""
    first, name = at, HASH_START
    while 97 <= data[at] | 32 <= 122 or 48 <= data[at] <= 58 or data[at] in (45, 46, 95):
        name = (name ^ np.uint64(data[at])) * HASH_FACTOR
        at += 1
    equals = _after_white(data, at)
    opening = _after_white(data, equals + 1)
    if at >= size or equals >= size or opening >= size:
        return at, MORE
    quote = data[opening]
    if at == first or data[first] < 65 or data[equals] != _EQUALS or quote not in (_QUOTE, _APOSTROPHE):
        return at, BROKEN
    if opening != at + 1 or quote != _QUOTE:
        row[STATE] = max(row[STATE], OTHERWISE)
    for other in range(count):
        if names[other] == name:
            return first, BROKEN
    names[count] = name
    closing, why = _value(data, eights, opening + 1, size, quote, row)
    if why != END:
        return closing, why
    if name == _ID_NAME:
        row[POST_ID] = _number(data, opening + 1, closing)
    elif name == _TYPE_NAME:
        row[POST_TYPE] = _number(data, opening + 1, closing)
    elif name == _PARENT_NAME:
        row[PARENT_ID] = _number(data, opening + 1, closing)
    return closing + 1, END


@inner
def _number(data: Bytes, at: int, stop: int) -> int:
    """A number above 0 of up to 15 digits; NO_NUMBER."""
    if not 0 < stop - at <= 15:
        return NO_NUMBER
    number = 0
    while at < stop and 48 <= data[at] <= 57:
        number = 10 * number + data[at] - 48
        at += 1
    return number if at == stop and number > 0 else NO_NUMBER


@inner
def _value(data: Bytes, eights: Eights, at: int, size: int, quote: int, row: Integers) -> tuple[int, int]:
    """A value: (where its closing quote is, END); as `_row`."""
    while True:
        marks = _not_plain(eights[at])
        if marks == 0:
            at += 8
            continue
        at += first_marked(marks)
        byte = data[at]
        if byte == quote:
            return at, END
        elif byte == _AMPERSAND:
            end = _reference(data, at, row)
            if end == _NO_REFERENCE:
                return at, MORE if at + _LONGEST_REFERENCE > size else BROKEN
            at = end
        elif byte == _LESS:
            return at, BROKEN
        elif byte >= 0x80:
            while data[at] >= 0x80:
                at = _after_character(data, at, row)
        else:
            if byte < 32:
                if at >= size:
                    return at, MORE
                row[STATE] = max(row[STATE], OTHERWISE if _is_white(byte) else FORBIDDEN)
            at += 1


@inner
def _not_plain(eight: np.uint64) -> np.uint64:
    """Marks what needs a second look: quotes, `&`, `<`, what is no ASCII, control characters."""
    quote_or_ampersand = zeros((eight | _EIGHT_FOURS) ^ _EIGHT_AMPERSANDS)
    others = zeros(eight ^ _EIGHT_LESS) | zeros(eight ^ _EIGHT_APOSTROPHES)
    return marks_of(eight | controls(eight) | quote_or_ampersand | others)


@inner
def _after_character(data: Bytes, at: int, row: Integers) -> int:
    """Behind a character of several bytes, which is checked: RFC 3629, and the two that XML forbids."""
    lead, second = data[at], data[at + 1]
    length = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
    is_sound = 0xC2 <= lead <= 0xF4 and 0x80 <= second < 0xC0
    for offset in range(2, length):
        is_sound = is_sound and 0x80 <= data[at + offset] < 0xC0
    if (lead == 0xE0 and second < 0xA0) or (lead == 0xF0 and second < 0x90):  # longer than need be
        is_sound = False
    if (lead == 0xED and second >= 0xA0) or (lead == 0xF4 and second >= 0x90):  # surrogates; above U+10FFFF
        is_sound = False
    if not is_sound:
        row[STATE] = NOT_UTF8
        return at + 1
    if lead == 0xEF and second == 0xBF and data[at + 2] >= 0xBE:  # U+FFFE, U+FFFF
        row[STATE] = max(row[STATE], FORBIDDEN)
    return at + length


@inner
def _reference(data: Bytes, at: int, row: Integers) -> int:
    """Where a reference ends; _NO_REFERENCE."""
    first, second = data[at + 1], data[at + 2]
    if second == 116 and data[at + 3] == 59 and (first == 108 or first == 103):  # lt; gt;
        return at + 4
    if first == 97 and second == 109 and data[at + 3] == 112 and data[at + 4] == 59:  # amp;
        return at + 5
    if first == _HASH:
        return _numeric_reference(data, at + 2, row)
    if data[at + 3] == 111 and data[at + 5] == 59:
        if first == 113 and second == 117 and data[at + 4] == 116:  # quot;
            return at + 6
        if first == 97 and second == 112 and data[at + 4] == 115:  # apos;
            row[STATE] = max(row[STATE], OTHERWISE)
            return at + 6
    return _NO_REFERENCE


@inner
def _numeric_reference(data: Bytes, at: int, row: Integers) -> int:
    base, number, is_hexadecimal = 10, 0, data[at] == 120
    if is_hexadecimal:
        base, at = 16, at + 1
        if data[at + 1] == 59 and (data[at] == 65 or data[at] == 68 or data[at] == 57):  # &#xA; &#xD; &#x9;
            return at + 2
    first = at
    while at - first < 10:
        byte = data[at]
        if 48 <= byte <= 57:
            number = base * number + byte - 48
        elif is_hexadecimal and 97 <= byte | 32 <= 102:
            number = base * number + (byte | 32) - 87
        else:
            break
        at += 1
    if at == first or data[at] != 59:
        return _NO_REFERENCE
    is_text = 32 <= number < 0xD800 or 0xE000 <= number < 0xFFFE or 0x10000 <= number < 0x110000
    is_white = number == 9 or number == 10 or number == 13
    row[STATE] = max(row[STATE], OTHERWISE if is_text or is_white else FORBIDDEN)
    return at + 1
