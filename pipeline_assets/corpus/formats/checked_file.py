"""Raw work files whose parts are verified when they are read.

Verifying the hash of a whole file for each read of a few values would take too long. So a file ends with a CRC-32 of
each 4 KiB of its values, and a reader verifies the blocks that it reads. Damage raises RetryableError in an unfinished
build, else InputError.
"""

import mmap
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from pipeline_assets.spine.damage import BYTES_DIFFER, errors_as_damage
from pipeline_assets.spine.durable import DurableFile

_BLOCK_BYTES, _CHECKSUM_DTYPE = 1 << 12, np.dtype("<u4")


class CheckedFile(DurableFile):
    """Writer of raw values with checksums; the file is durable after the `with` block."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._checksums: list[int] = []
        self._open_checksum = self._open_bytes = 0  # of the last block, while it is not full

    def write(self, data: bytes | memoryview) -> int:
        view = memoryview(data).cast("B")
        start = 0
        while start < len(view):
            part = view[start : start + _BLOCK_BYTES - self._open_bytes]
            self._open_checksum = zlib.crc32(part, self._open_checksum)
            self._open_bytes += len(part)
            start += len(part)
            if self._open_bytes == _BLOCK_BYTES:
                self._end_block()
        return super().write(view)

    def finish(self) -> None:
        if self._open_bytes or not self._checksums:
            self._end_block()
        super().write(np.array(self._checksums, _CHECKSUM_DTYPE).tobytes())

    def _end_block(self) -> None:
        self._checksums.append(self._open_checksum)
        self._open_checksum = self._open_bytes = 0


def map_values(path: Path, dtype: DTypeLike, start: int = 0, stop: int | None = None) -> NDArray[Any]:
    """Map and verify the values [start, stop) of a `CheckedFile`, shape (values,)."""
    with errors_as_damage(path, "array"):
        with open(path, "rb", buffering=0) as file:
            data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        value_bytes, item_bytes = _value_bytes(len(data)), np.dtype(dtype).itemsize
        first, end = start * item_bytes, value_bytes if stop is None else stop * item_bytes
        if end > value_bytes:
            raise ValueError("the file ends early")
        blocks = range(first // _BLOCK_BYTES, -(-end // _BLOCK_BYTES))
        offset = value_bytes + blocks.start * _CHECKSUM_DTYPE.itemsize
        checksums = np.frombuffer(data, _CHECKSUM_DTYPE, len(blocks), offset)
        for block, checksum in zip(blocks, checksums.tolist(), strict=True):
            if zlib.crc32(data[block * _BLOCK_BYTES : min((block + 1) * _BLOCK_BYTES, value_bytes)]) != checksum:
                raise ValueError(BYTES_DIFFER)
        return np.frombuffer(data, dtype, (end - first) // item_bytes, first)


def count_values(path: Path, dtype: DTypeLike) -> int:
    """Return the number of values of a `CheckedFile`, computed from its size."""
    with errors_as_damage(path, "array"):
        count, rest = divmod(_value_bytes(path.stat().st_size), np.dtype(dtype).itemsize)
        if rest:
            raise ValueError("the file ends early")
    return count


def _value_bytes(file_bytes: int) -> int:
    """Return the size in bytes of the values of a file, without the checksums.

    The file has one checksum for each block of values, full or not; a file without values has one checksum.
    """
    blocks = max(-(-file_bytes // (_BLOCK_BYTES + _CHECKSUM_DTYPE.itemsize)), 1)  # rounded up
    value_bytes = file_bytes - blocks * _CHECKSUM_DTYPE.itemsize
    if value_bytes < 0:
        raise ValueError("the file ends early")
    return value_bytes
