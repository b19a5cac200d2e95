"""Columns by name, or by path into nested ones: `metadata.url` is `url` of the object `metadata`."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa


def column_paths(schema: pa.Schema | pa.StructType, above: str = "") -> Iterator[str]:
    """Names of all columns, those inside structs with their path."""
    for field in schema:
        if pa.types.is_struct(field.type):
            yield from column_paths(field.type, f"{above}{field.name}.")
        else:
            yield above + field.name


def has_column(schema: pa.Schema, name: str) -> bool:
    """Whether there is a column of this name or path."""
    return name in schema.names or name in column_paths(schema)


def find_column(row: dict[str, Any], name: str) -> tuple[dict[str, Any], str] | None:
    """(the object that holds the column, its key there); None if the row has no such column."""
    if name in row:
        return row, name
    holder: Any = row
    *path, key = name.split(".")
    for part in path:
        holder = holder.get(part)
        if not isinstance(holder, dict):
            return None
    return (holder, key) if key in holder else None


def take_column(columns: dict[str, list[Any]], name: str) -> list[Any]:
    """The values of a column, taken out of all columns: a nested one out of the objects that hold it."""
    if name in columns:
        return columns.pop(name)
    top = name.split(".")[0]
    found = [find_column({top: value}, name) for value in columns[top]]
    return [None if at is None else at[0].pop(at[1]) for at in found]
