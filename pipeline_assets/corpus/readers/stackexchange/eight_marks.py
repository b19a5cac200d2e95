"""Searches in eight bytes at once, compiled.

A test marks bytes by their high bits. The lowest mark is right; above it, where the subtraction borrows, there may be
false ones (Warren, Hacker's Delight, 6-1). A search that stops at the lowest loses nothing by that.
"""

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import inner

Eights = NDArray[np.uint64]
_ONE, _ONES, _HIGH_BITS = np.uint64(1), np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
_TO_LOWEST_BIT, _TO_LAST_BYTE, _PLACES = np.uint64(7), np.uint64(56), np.uint64(0x0001020304050607)


def eight_times(byte: int) -> np.uint64:
    """A byte in all eight places."""
    return np.uint64(byte * 0x0101010101010101)


_SPACES = eight_times(32)


@inner
def zeros(eight: np.uint64) -> np.uint64:
    """Marks bytes that are 0; other bits than marks are to be ignored."""
    return (eight - _ONES) & ~eight


@inner
def controls(eight: np.uint64) -> np.uint64:
    """Marks bytes below 32; as `zeros`."""
    return (eight - _SPACES) & ~eight


@inner
def marks_of(eight: np.uint64) -> np.uint64:
    """The marks alone."""
    return eight & _HIGH_BITS


@inner
def first_marked(marks: np.uint64) -> int:
    """The place of the lowest mark, 0 to 7; there is one."""
    lowest = marks & (~marks + _ONE)
    return int(np.int64((lowest >> _TO_LOWEST_BIT) * _PLACES >> _TO_LAST_BYTE))
