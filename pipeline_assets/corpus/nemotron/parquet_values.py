"""Parquet values."""

import base64
import datetime
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline_assets.corpus.readers.columns import MAX_NESTING
from pipeline_assets.corpus.readers.local_parquet import RowGroupRun
from pipeline_assets.corpus.readers.source_folder import open_source

# In messages null counts as absent wherever it is looked for, but for what becomes JSON text of its own.
_TEXTS_OF_MESSAGES = frozenset({"content", "reasoning_content", "thinking", "reasoning", "arguments"})


@dataclass(frozen=True)
class ParquetRows:
    """What is to be done to the rows of one file.

    Attributes:
        has_other_values: a column has times, decimals, bytes or the like, at any depth.
        with_objects: columns with objects, of which nulls are to be left out.
        is_shallow: no value can be nested deeper than `MAX_NESTING`.
    """

    has_other_values: bool
    with_objects: tuple[str, ...]
    is_shallow: bool

    @classmethod
    def for_schema(cls, schema: pa.Schema) -> "ParquetRows":
        """Rows of this schema."""
        with_objects = tuple(
            field.name
            for field in schema
            if (_has_objects_in_texts(field.type) if field.name == "messages" else _has_objects(field.type))
        )
        deepest = max((2 * str(field.type).count("<") for field in schema), default=0)  # a map is a list of pairs
        return cls(not all(_is_json(field.type) for field in schema), with_objects, deepest <= MAX_NESTING)

    def as_json_lines(self, columns: Mapping[str, Any]) -> dict[str, Any]:
        """A row as `json.loads` would have it."""
        row = as_json(columns) if self.has_other_values else dict(columns)
        for column in self.with_objects:
            row[column] = _without_nulls(row[column])
        return row


def parquet_files(pieces: Iterable[object]) -> dict[str, ParquetRows]:
    """The Parquet files among them, by name."""
    files = {piece.file.name: piece.file for piece in pieces if isinstance(piece, RowGroupRun)}
    found = {}
    for name, file in files.items():
        with open_source(file) as opened:
            found[name] = ParquetRows.for_schema(pq.read_schema(opened))
    return found


def as_json(value: Any) -> Any:
    """The value; times in ISO 8601, decimals as text to the last digit, bytes as their UTF-8, else in base64, UUIDs in
    their usual form.
    """
    match value:
        case dict():
            return {key: as_json(one) for key, one in value.items()}
        case list() | tuple():
            return [as_json(one) for one in value]
        case datetime.date() | datetime.time():  # a datetime is a date
            return value.isoformat()
        case datetime.timedelta() | Decimal() | uuid.UUID():
            return str(value)
        case bytes():
            try:
                return value.decode("utf-8")
            except UnicodeDecodeError:
                return base64.b64encode(value).decode("ascii")
    return value


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _without_nulls(one) if type(one) in (dict, list) else one
            for key, one in value.items()
            if one is not None
        }
    return [_without_nulls(one) for one in value] if isinstance(value, list) else value


def _has_objects(kind: pa.DataType) -> bool:
    return pa.types.is_struct(kind) or any(_has_objects(field.type) for field in _fields(kind))


def _has_objects_in_texts(kind: pa.DataType) -> bool:
    return any(
        _has_objects(field.type) if field.name in _TEXTS_OF_MESSAGES else _has_objects_in_texts(field.type)
        for field in _fields(kind)
    )


def _fields(kind: pa.DataType) -> list[pa.Field]:
    return [kind.field(place) for place in range(kind.num_fields)]


def _is_json(kind: pa.DataType) -> bool:
    if kind.num_fields:
        return all(_is_json(field.type) for field in _fields(kind)) and not pa.types.is_map(kind)
    if pa.types.is_dictionary(kind):
        return _is_json(kind.value_type)
    names = (pa.types.is_string, pa.types.is_large_string, pa.types.is_integer, pa.types.is_floating)
    return any(test(kind) for test in (*names, pa.types.is_boolean, pa.types.is_null))
