"""Sets of documents as bitmaps with one bit for each document number.

Bit n % 8 of byte n // 8 belongs to the document with number n; a bitmap has the shape (documents // 8 + 1,). Functions
accept documents as numbers or as priorities, because the lower 32 bits of a priority are the number.
"""

import functools
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import compiled, compiled_inner
from pipeline_assets.corpus.dedup.document_order import document_numbers
from pipeline_assets.corpus.formats.checked_file import CheckedFile, map_values

_NUMBER_MASK = np.uint64(2**32 - 1)  # mask of the lower 32 bits
_3, _7, _ONE = np.uint64(3), np.uint64(7), np.uint8(1)


def empty_bitmap(document_count: int) -> NDArray[np.uint8]:
    """Return an empty bitmap for the document numbers below `document_count`."""
    return np.zeros((document_count >> 3) + 1, np.uint8)


@compiled
def add_to_bitmap(bitmap: NDArray[np.uint8], documents: NDArray[np.uint64]) -> None:
    """Set the bits of documents in a bitmap, in place."""
    for document in documents:
        number = document & _NUMBER_MASK
        bitmap[number >> _3] |= _ONE << np.uint8(number & _7)


@compiled_inner
def is_member(bitmap: NDArray[np.uint8], document: np.uint64) -> bool:
    """Check whether the bit of a document is set in a bitmap."""
    number = document & _NUMBER_MASK
    return bool(bitmap[number >> _3] >> np.uint8(number & _7) & _ONE)  # shift the document's bit down to bit 0


def bitmap_contains(documents: NDArray[np.uint64], bitmap: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Return a mask of the documents whose bit is set in a bitmap."""
    numbers = document_numbers(documents)
    bits = np.asarray(bitmap)[numbers >> _3] >> (numbers & _7).astype(np.uint8) & _ONE  # `is_member` for arrays
    is_member: NDArray[np.bool_] = bits != 0
    return is_member


def save_bitmap(bitmap: NDArray[np.uint8], path: Path) -> Path:
    """Write a bitmap to a file and return its path."""
    with CheckedFile(path) as file:
        file.write(bitmap.tobytes())
    return path


def load_bitmap(path: Path) -> NDArray[np.uint8]:
    """Map a file of `save_bitmap` into memory, read-only and shared by processes.

    If the file is damaged, raise RetryableError in an unfinished build, else InputError.
    """
    written = path.stat()
    return _open_bitmap(path, written.st_ino, written.st_mtime_ns)


@functools.lru_cache(maxsize=1)
def _open_bitmap(path: Path, inode: int, modified_ns: int) -> NDArray[np.uint8]:
    return map_values(path, np.uint8)
