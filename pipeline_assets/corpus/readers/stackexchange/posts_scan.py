"""The attributes of spilled rows as columns, compiled."""

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import compiled, inner
from pipeline_assets.corpus.readers.stackexchange.arrays import Bytes, Integers
from pipeline_assets.corpus.readers.stackexchange.row_scan import HASH_FACTOR, HASH_START, hash_of_name

INTEGERS = (
    "PostTypeId",
    "Id",
    "ParentId",
    "AcceptedAnswerId",
    "Score",
    "ViewCount",
    "OwnerUserId",
    "AnswerCount",
    "CommentCount",
    "FavoriteCount",
)
STRINGS = (
    "CreationDate",
    "Body",
    "Title",
    "Tags",
    "LastEditDate",
    "LastActivityDate",
    "ClosedDate",
    "CommunityOwnedDate",
    "ContentLicense",
)
MISSING, INVALID = -(2**63), -(2**63) + 1
_FIELDS = np.array([hash_of_name(name.encode()) for name in (*INTEGERS, *STRINGS)], np.uint64)
_INTEGERS = len(INTEGERS)
_QUOTE, _NEWLINE, _MINUS, _EQUALS = b'"\n-='
_EIGHT_ONES, _EIGHT_HIGH_BITS, _EIGHT_QUOTES = (np.uint64(byte * 0x0101010101010101) for byte in (1, 0x80, _QUOTE))


@compiled
def read_rows(
    data: Bytes, eights: NDArray[np.uint64], at: int, is_post: NDArray[np.bool_], integers: Integers, strings: Integers
) -> None:
    """Lines of attributes, `Name="value"` with a space between, as the dumps escape them.

    Args:
        data: uint8; the last line ends in a line break too, and seven bytes at least follow it.
        eights: `eight_bytes_at_each` byte of the data.
        at: where the first line begins.
        is_post: bool, a line each; of one that is none only `strings[:, 0]` is filled, with the whole line.
        integers: int64, shape (lines, INTEGERS), is filled: MISSING; INVALID, no integer of up to 15 digits.
        strings: int64, shape (lines, STRINGS, 2), is filled: where values lie in `data`; (MISSING, MISSING).
    """
    integers[:] = MISSING
    strings[:] = MISSING
    for line in range(len(is_post)):
        first = at
        while data[at] != _NEWLINE:
            if not is_post[line]:
                at += 1
                continue
            name = HASH_START
            while data[at] != _EQUALS:
                name = (name ^ np.uint64(data[at])) * HASH_FACTOR
                at += 1
            start = at + 2
            at = _closing_quote(data, eights, start)
            for field in range(len(_FIELDS)):
                if _FIELDS[field] == name:
                    if field < _INTEGERS:
                        integers[line, field] = _integer(data, start, at)
                    else:
                        strings[line, field - _INTEGERS, 0] = start
                        strings[line, field - _INTEGERS, 1] = at
            at += 1 if data[at + 1] == _NEWLINE else 2
        if not is_post[line]:
            strings[line, 0, 0] = first
            strings[line, 0, 1] = at
        at += 1


@inner
def _closing_quote(data: Bytes, eights: NDArray[np.uint64], at: int) -> int:
    """Where the next quote is; there is one. Eight bytes at a time: bodies are most of the data."""
    while True:
        zero_if_quote = eights[at] ^ _EIGHT_QUOTES
        if (zero_if_quote - _EIGHT_ONES) & ~zero_if_quote & _EIGHT_HIGH_BITS != 0:
            break
        at += 8
    while data[at] != _QUOTE:
        at += 1
    return at


@inner
def _integer(data: Bytes, at: int, stop: int) -> int:
    is_negative = data[at] == _MINUS
    first = at + 1 if is_negative else at
    at, number = first, 0
    while at < stop and at - first < 15 and 48 <= data[at] <= 57:
        number = 10 * number + data[at] - 48
        at += 1
    if at != stop or at == first:
        return INVALID
    return -number if is_negative else number
