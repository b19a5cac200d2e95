"""Arrow columns → Python values that JSON can hold; those that are no UTF-8, or too deep, as faults of their rows."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from pipeline_assets.corpus.readers.row_faults import (
    MAX_NESTING,
    Fault,
    is_nested_within,
    nesting_fault,
    utf8_fault,
)


def column_values(column: pa.Array) -> list[Any]:
    """The column as Python values; one that is, or holds, text that is no UTF-8 as its `Fault`, and so one that is
    nested deeper than `MAX_NESTING`.

    Nanoseconds are times of the standard library where those can hold them, else text.
    """
    try:
        values: list[Any] = column.to_pylist()
    except UnicodeDecodeError:
        values = [_value(scalar) for scalar in column]
    if str(column.type).count("<") > MAX_NESTING:
        values = [value if is_nested_within(value) else nesting_fault() for value in values]
    return [_without_pandas(value) for value in values] if "[ns" in str(column.type) else values


def faulty_rows(columns: Sequence[list[Any]]) -> dict[int, Fault]:
    """Rows of a batch with a value that is a Fault; nearly always none, which costs a look at the types."""
    return {
        number: value
        for column in reversed(columns)
        if Fault in set(map(type, column))
        for number, value in enumerate(column)
        if isinstance(value, Fault)
    }


def _value(scalar: pa.Scalar) -> Any:
    try:
        return scalar.as_py()
    except UnicodeDecodeError as error:
        return utf8_fault(error)


def _without_pandas(value: Any) -> Any:
    """pyarrow has pandas hold nanoseconds, in types that no JSON encoder takes."""
    match type(value).__name__:
        case "list" | "tuple":
            return [_without_pandas(item) for item in value]
        case "dict":
            return {key: _without_pandas(item) for key, item in value.items()}
        case "Timestamp":
            return str(value) if value.nanosecond else value.to_pydatetime()
        case "Timedelta":
            return str(value) if value.nanoseconds else value.to_pytimedelta()
    return value
