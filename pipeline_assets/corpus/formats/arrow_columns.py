"""Conversion between Arrow columns and NumPy arrays, without importing pandas.

pyarrow's own conversions import pandas, which takes a quarter of a second per process. This module uses the buffers of
an Arrow column: validity bits (None if no value is null) and values. A text column has three buffers: validity bits,
`rows + 1` int32 offsets, and bytes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def to_numpy(column: pa.Array | pa.ChunkedArray) -> NDArray[Any]:
    """Convert a column of numbers without nulls to an array, shape (rows,).

    If the column has one chunk, the array is a view of the chunk; several chunks are copied.
    """
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    dtype = np.dtype(column.type.to_pandas_dtype())
    views = [np.frombuffer(chunk.buffers()[1], dtype, len(chunk), chunk.offset * dtype.itemsize) for chunk in chunks]
    return views[0] if len(views) == 1 else np.concatenate([np.empty(0, dtype), *views])


def to_bools(column: pa.BooleanArray) -> NDArray[np.bool_]:
    """Convert a boolean column to a mask, shape (rows,); null becomes False."""
    import pyarrow.compute as pc

    is_true = pc.and_(column, column.is_valid()) if column.null_count else column
    bits = is_true.cast(pa.uint8())
    return np.frombuffer(bits.buffers()[1], np.uint8, len(bits), bits.offset).astype(bool)


def bool_column(mask: NDArray[np.bool_]) -> pa.BooleanArray:
    """Convert a boolean mask, shape (rows,), to a column."""
    bits = pa.py_buffer(np.packbits(mask, bitorder="little"))  # Arrow's bit order: row 0 is the lowest bit of byte 0
    return pa.Array.from_buffers(pa.bool_(), len(mask), [None, bits])


def string_column(values: Sequence[str | bytes]) -> pa.StringArray:
    """Convert texts or UTF-8 bytes, less than 2 GiB in total, to a column."""
    encoded = [value.encode() if isinstance(value, str) else value for value in values]
    offsets = np.zeros(len(encoded) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, encoded), np.int32, len(encoded)), out=offsets[1:])
    return pa.StringArray.from_buffers(len(encoded), pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded)))


def widen_offsets(array: pa.Array) -> pa.Array:
    """Widen the offsets of a text or binary column to 64 bits; values are not copied.

    `cast` is not used: its first call imports `pyarrow.compute`, which takes as long as importing pyarrow itself.
    """
    kind = pa.large_string() if pa.types.is_string(array.type) else pa.large_binary()
    valid, narrow, characters = array.buffers()
    stop = array.offset + len(array) + 1  # a slice shares its buffers, so the offsets before it are converted too
    offsets = np.frombuffer(narrow, np.int32, stop) if narrow is not None and narrow.size else np.zeros(stop, np.int32)
    buffers = [valid, pa.py_buffer(offsets.astype(np.int64)), characters]
    return pa.Array.from_buffers(kind, len(array), buffers, offset=array.offset)


def repeat_text(text: str, row_count: int) -> pa.StringArray:
    """Build a column whose rows all have the same text."""
    value = text.encode()
    offsets = np.arange(row_count + 1, dtype=np.int32) * np.int32(len(value))
    return pa.StringArray.from_buffers(row_count, pa.py_buffer(offsets), pa.py_buffer(value * row_count))


def to_arrow(values: NDArray[Any]) -> pa.Array:
    """View an array of numbers, shape (rows,), as a column; copy it if not contiguous."""
    kind = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def to_table(columns: Mapping[str, NDArray[Any] | pa.Array | pa.ChunkedArray]) -> pa.Table:
    """Build a table from columns by name; contiguous NumPy arrays are not copied."""
    arrays = [to_arrow(column) if isinstance(column, np.ndarray) else column for column in columns.values()]
    return pa.Table.from_arrays(arrays, names=list(columns))
