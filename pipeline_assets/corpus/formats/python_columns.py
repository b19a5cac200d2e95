"""Conversion of Python values to Arrow columns and tables, with None as null."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline_assets.corpus.formats.arrow_columns import bool_column, string_column, to_arrow, widen_offsets


def fill_null(column: pa.Array | pa.ChunkedArray, value: float) -> pa.Array | pa.ChunkedArray:
    """Replace the nulls of a column of numbers with `value`."""
    return column.fill_null(to_column([value], column.type)[0])  # a Python value would import pandas


def nan_to_null(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Replace NaN in a column of floats by null; return other columns unchanged."""
    import pyarrow.compute as pc

    is_float = pa.types.is_floating(column.type)
    return pc.if_else(pc.is_nan(column), pa.nulls(1, column.type)[0], column) if is_float else column


def rows_to_table(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """Convert rows to a table; a missing value is null."""
    columns = [to_column([row.get(field.name) for row in rows], field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def to_column(values: Sequence[Any], data_type: pa.DataType) -> pa.Array:
    """Convert Python values to a column.

    Values are texts, booleans, numbers, lists of texts, or dicts. None becomes null, but is not allowed among dicts.
    """
    if pa.types.is_struct(data_type):
        children = [to_column([value[field.name] for value in values], field.type) for field in data_type]
        return pa.StructArray.from_arrays(children, fields=list(data_type))
    if pa.types.is_large_string(data_type):
        return widen_offsets(to_column(values, pa.string()))
    valid = None
    if None in values:
        is_valid = np.array([value is not None for value in values], bool)
        valid = pa.py_buffer(np.packbits(is_valid, bitorder="little"))
    if pa.types.is_list(data_type):
        offsets = np.zeros(len(values) + 1, np.int32)
        np.cumsum([len(value or ()) for value in values], out=offsets[1:])
        texts = to_column([text for value in values for text in value or ()], data_type.value_type)
        return pa.Array.from_buffers(data_type, len(values), [valid, pa.py_buffer(offsets)], children=[texts])
    if pa.types.is_string(data_type):
        buffers = string_column([value or "" for value in values]).buffers()[1:]
    elif pa.types.is_boolean(data_type):
        buffers = bool_column(np.array([bool(value) for value in values], bool)).buffers()[1:]
    else:
        numbers = np.array([0 if value is None else value for value in values], data_type.to_pandas_dtype())
        buffers = to_arrow(numbers).buffers()[1:]
    return pa.Array.from_buffers(data_type, len(values), [valid, *buffers])
