"""Arrow arrays to and from NumPy and Python by their buffers: pyarrow's own ways import pandas first, which takes a
quarter of a second of every process.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

_INT64 = range(-(2**63), 2**63)


def numbers(column: pa.Array | pa.ChunkedArray) -> NDArray[Any]:
    """A column of whole numbers or floats without nulls, shape (rows,), viewed where it is in one piece."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    dtype = np.dtype(column.type.to_pandas_dtype())
    views = [np.frombuffer(chunk.buffers()[1], dtype, len(chunk), chunk.offset * dtype.itemsize) for chunk in chunks]
    return views[0] if len(views) == 1 else np.concatenate([np.empty(0, dtype), *views])


def truths(column: pa.BooleanArray) -> NDArray[np.bool_]:
    """Which rows are true, shape (rows,); null is not."""
    is_true = pc.and_(column, column.is_valid()) if column.null_count else column
    bits = is_true.cast(pa.uint8())
    return np.frombuffer(bits.buffers()[1], np.uint8, len(bits), bits.offset).astype(bool)


def mask(rows: NDArray[np.bool_]) -> pa.BooleanArray:
    """What `filter` takes."""
    bits = pa.py_buffer(np.packbits(rows, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), len(rows), [None, bits])


def array_of(values: Sequence[Any]) -> pa.Array:
    """Values of one kind; of other kinds than text, whole numbers and floats as pyarrow has it."""
    kinds = set(map(type, values))
    if kinds == {str}:
        encoded = [value.encode() for value in values]
        offsets = np.concatenate(([0], np.cumsum([len(value) for value in encoded]))).astype(np.int32)
        return pa.Array.from_buffers(
            pa.string(), len(values), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))]
        )
    if kinds == {int} and all(value in _INT64 for value in values):
        return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(np.array(values, np.int64))])
    if kinds and kinds <= {int, float}:
        return pa.Array.from_buffers(pa.float64(), len(values), [None, pa.py_buffer(np.array(values, np.float64))])
    return pa.array(values)
