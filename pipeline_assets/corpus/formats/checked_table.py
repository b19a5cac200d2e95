"""Tables in work files, with checksums of blocks of rows.

The metadata of the Arrow schema has a CRC-32 of each block of 4,096 rows. Another CRC-32, which tables of earlier
program versions lack, covers the number of rows and the columns' names and types. A reader verifies this CRC-32, and
the CRC-32 of each block that it reads. A wrong checksum raises RetryableError in an unfinished build, else InputError.
"""

import itertools
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline_assets.corpus.formats.arrow_columns import to_numpy
from pipeline_assets.spine.damage import BYTES_DIFFER, errors_as_damage
from pipeline_assets.spine.staging import OutputFile, StagingView

_CHECKSUM_DTYPE, _ROWS_PER_CHECKSUM = np.dtype("<u4"), 4096
_ROWS_KEY, _SHAPE_KEY = b"crc32", b"shape_crc32"


def write_checked_table(folder: StagingView, name: str, table: pa.Table) -> OutputFile:
    """Write a table, which may be empty, as an uncompressed Arrow file."""
    table = table.combine_chunks()
    metadata = {_ROWS_KEY: _checksums(table).tobytes(), _SHAPE_KEY: _shape_checksum(table)}
    table = table.replace_schema_metadata(metadata)
    sink = pa.BufferOutputStream()  # because Arrow would write each column on its own
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return folder.write(name, memoryview(sink.getvalue()), table.num_rows)


def map_checked_table(path: Path, noun: str, start: int = 0, stop: int | None = None) -> pa.Table:
    """Map and verify the rows [start, stop) of a `write_checked_table` file.

    If `stop` is None, the last row is included. The file is not kept open. `noun` describes the file in errors.
    """
    with errors_as_damage(path, noun):
        with pa.memory_map(str(path)) as file:
            table = pa.ipc.open_file(file).read_all()
        stop = table.num_rows if stop is None else stop
        first, last = start // _ROWS_PER_CHECKSUM, -(-stop // _ROWS_PER_CHECKSUM)
        written = np.frombuffer(table.schema.metadata[_ROWS_KEY], _CHECKSUM_DTYPE)[first:last]
        read = table.slice(first * _ROWS_PER_CHECKSUM, (last - first) * _ROWS_PER_CHECKSUM)
        shape = _shape_checksum(table)
        is_whole = table.schema.metadata.get(_SHAPE_KEY, shape) == shape
        if not is_whole or stop > table.num_rows or not np.array_equal(_checksums(read), written):
            raise ValueError(BYTES_DIFFER)
    return table.slice(start, stop - start)


def _shape_checksum(table: pa.Table) -> bytes:
    """Return the hex CRC-32 of the number of rows and the columns' names and types."""
    columns = [(field.name, str(field.type)) for field in table.schema]
    return b"%08x" % zlib.crc32(repr((table.num_rows, columns)).encode())


def _checksums(table: pa.Table) -> NDArray[np.uint32]:
    """Return a CRC-32 per block of 4,096 rows; the table has at most one chunk."""
    starts = range(0, table.num_rows, _ROWS_PER_CHECKSUM)
    checksums = np.zeros(len(starts), _CHECKSUM_DTYPE)
    for column in itertools.chain.from_iterable(column.chunks for column in table.columns):
        for number, start in enumerate(starts):
            for part in _column_bytes(column.slice(start, _ROWS_PER_CHECKSUM)):
                checksums[number] = zlib.crc32(part, int(checksums[number]))
    return checksums


def _column_bytes(column: pa.Array) -> Iterator[Any]:
    """Yield the bytes of a column of numbers, texts or binary values."""
    yield column.null_count.to_bytes(8, "little")
    if pa.types.is_primitive(column.type):
        yield to_numpy(column)
        return
    _, offsets, values = column.buffers()
    bounds = np.frombuffer(offsets, np.int32, len(column) + 1, column.offset * 4)
    yield bounds - bounds[0]
    yield memoryview(values or b"")[bounds[0] : bounds[-1]]
