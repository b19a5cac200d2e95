"""Work files that are verified as they are read, whichever part is read.

The hash of a whole file cannot be verified each time that a few of its values are read. So a raw file ends with a
CRC-32 of each 4 KiB of its values, and the schema of an Arrow file has a CRC-32 of each 4,096 rows. A reader verifies
each part that it reads. It raises RetryableError in an unfinished build, else InputError.
"""

import itertools
import mmap
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import DTypeLike, NDArray

from pipeline_assets.corpus.formats.arrow_columns import to_numpy
from pipeline_assets.spine.damage import errors_as_damage
from pipeline_assets.spine.durable import DurableFile
from pipeline_assets.spine.staging import OutputFile, StagingView

_BLOCK_BYTES, _CHECKSUM = 1 << 12, np.dtype("<u4")
_KEY, _CHECKED_ROWS = b"crc32", 4096  # key in the schema, and rows for each checksum
OTHER_BYTES = "the bytes differ from those written"


class CheckedFile(DurableFile):
    """Raw file of values that `map_values` reads; its block writes the values."""

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
        super().write(np.array(self._checksums, _CHECKSUM).tobytes())

    def _end_block(self) -> None:
        self._checksums.append(self._open_checksum)
        self._open_checksum = self._open_bytes = 0


def map_values(path: Path, dtype: DTypeLike, start: int = 0, stop: int | None = None) -> NDArray[Any]:
    """Map and verify the values [start, stop) of a `CheckedFile`, shape (values,).

    None for `stop` means to the end of the file.
    """
    with errors_as_damage(path, "array"):
        with open(path, "rb", buffering=0) as file:
            data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        value_bytes, item_bytes = _value_bytes(len(data)), np.dtype(dtype).itemsize
        first, end = start * item_bytes, value_bytes if stop is None else stop * item_bytes
        if end > value_bytes:
            raise ValueError("it ends early")
        blocks = range(first // _BLOCK_BYTES, -(-end // _BLOCK_BYTES))
        checksums = np.frombuffer(data, _CHECKSUM, len(blocks), value_bytes + blocks.start * _CHECKSUM.itemsize)
        for block, checksum in zip(blocks, checksums.tolist(), strict=True):
            if zlib.crc32(data[block * _BLOCK_BYTES : min((block + 1) * _BLOCK_BYTES, value_bytes)]) != checksum:
                raise ValueError(OTHER_BYTES)
        return np.frombuffer(data, dtype, (end - first) // item_bytes, first)


def count_values(path: Path, dtype: DTypeLike) -> int:
    """Return the number of values of a `CheckedFile` by its size; nothing is read."""
    with errors_as_damage(path, "array"):
        count, rest = divmod(_value_bytes(path.stat().st_size), np.dtype(dtype).itemsize)
        if rest:
            raise ValueError("it ends early")
    return count


def _value_bytes(file_bytes: int) -> int:
    """Return the size of the values of a file, in bytes.

    Each started block of values adds a checksum; a file without values has one, too.
    """
    blocks = max(-(-file_bytes // (_BLOCK_BYTES + _CHECKSUM.itemsize)), 1)  # rounded up
    value_bytes = file_bytes - blocks * _CHECKSUM.itemsize
    if value_bytes < 0:
        raise ValueError("it ends early")
    return value_bytes


def write_checked_table(folder: StagingView, name: str, table: pa.Table) -> OutputFile:
    """Write a table, which may be empty, as an uncompressed Arrow file."""
    table = table.combine_chunks()
    table = table.replace_schema_metadata({_KEY: _checksums(table).tobytes()})
    sink = pa.BufferOutputStream()  # because Arrow would write each column on its own
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return folder.write(name, memoryview(sink.getvalue()), table.num_rows)


def map_checked_table(path: Path, noun: str, start: int = 0, stop: int | None = None) -> pa.Table:
    """Map and verify the rows [start, stop) of a `write_checked_table` file.

    None for `stop` means all later rows. The file is not kept open. Errors call it a `noun`.
    """
    with errors_as_damage(path, noun):
        with pa.memory_map(str(path)) as file:
            table = pa.ipc.open_file(file).read_all()
        stop = table.num_rows if stop is None else stop
        first, last = start // _CHECKED_ROWS, -(-stop // _CHECKED_ROWS)
        written = np.frombuffer(table.schema.metadata[_KEY], _CHECKSUM)[first:last]
        read = table.slice(first * _CHECKED_ROWS, (last - first) * _CHECKED_ROWS)
        if stop > table.num_rows or not np.array_equal(_checksums(read), written):
            raise ValueError(OTHER_BYTES)
    return table.slice(start, stop - start)


def _checksums(table: pa.Table) -> NDArray[np.uint32]:
    """Return the CRC-32 of each 4,096 rows of a table of one chunk or of none."""
    starts = range(0, table.num_rows, _CHECKED_ROWS)
    checksums = np.zeros(len(starts), _CHECKSUM)
    for column in itertools.chain.from_iterable(column.chunks for column in table.columns):
        for number, start in enumerate(starts):
            for part in _parts(column.slice(start, _CHECKED_ROWS)):
                checksums[number] = zlib.crc32(part, int(checksums[number]))
    return checksums


def _parts(column: pa.Array) -> Iterator[Any]:
    """Yield the bytes of a column of numbers, texts or binary values."""
    yield column.null_count.to_bytes(8, "little")
    if pa.types.is_primitive(column.type):
        yield to_numpy(column)
        return
    _, offsets, values = column.buffers()
    bounds = np.frombuffer(offsets, np.int32, len(column) + 1, column.offset * 4)
    yield bounds - bounds[0]
    yield memoryview(values or b"")[bounds[0] : bounds[-1]]
