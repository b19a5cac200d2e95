"""Sets of documents as bitmaps with one bit for each document number.

Bit n % 8 of byte n // 8 belongs to the document with number n; a bitmap has the shape (documents // 8 + 1,). Functions
accept document numbers or priorities as `order` and `orders`, because the lower 32 bits of a priority are the number.
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
def add_to_bitmap(members: NDArray[np.uint8], orders: NDArray[np.uint64]) -> None:
    """Set the bits of documents in the bitmap `members`, in place."""
    for order in orders:
        number = order & _NUMBER_MASK
        members[number >> _3] |= _ONE << np.uint8(number & _7)


@compiled_inner
def is_member(members: NDArray[np.uint8], order: np.uint64) -> bool:
    """Check whether the bit of a document is set in the bitmap `members`."""
    number = order & _NUMBER_MASK
    return bool(members[number >> _3] >> np.uint8(number & _7) & _ONE)  # shift the document's bit down to bit 0


def bitmap_contains(orders: NDArray[np.uint64], members: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Return a mask of the documents in `orders` whose bit in `members` is set."""
    documents = document_numbers(orders)
    bits = np.asarray(members)[documents >> _3] >> (documents & _7).astype(np.uint8) & _ONE  # `is_member` for arrays
    is_member: NDArray[np.bool_] = bits != 0
    return is_member


def save_bitmap(members: NDArray[np.uint8], path: Path) -> Path:
    """Write a bitmap to a file and return its path."""
    with CheckedFile(path) as file:
        file.write(members.tobytes())
    return path


def load_bitmap(path: Path) -> NDArray[np.uint8]:
    """Map a file of `save_bitmap`, read-only, into memory that processes share.

    A process verifies the file while mapping it, and keeps the last mapping for later calls. If the file is damaged,
    raise RetryableError in an unfinished build, else InputError.
    """
    written = path.stat()
    return _open_bitmap(path, written.st_ino, written.st_mtime_ns)


@functools.lru_cache(maxsize=1)
def _open_bitmap(path: Path, inode: int, modified_ns: int) -> NDArray[np.uint8]:
    return map_values(path, np.uint8)
