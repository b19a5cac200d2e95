"""Values of Parquet files, converted to those of JSON lines.

A row must be equal in both formats. Parquet has one schema for all rows, so a key that an object lacks arrives as null.
A null that a JSON line contains is indistinguishable from such a null, and is removed too; nulls in lists are kept.
Parquet also lacks each row's order of keys, so the properties of a tool may have another order in a text.
"""

import base64
import datetime
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline_assets.corpus.readers.local_parquet import RowGroupRun
from pipeline_assets.corpus.readers.source_folder import open_source

# Message keys whose value may become JSON text, where null would not count as absent.
_MESSAGE_TEXTS = frozenset({"content", "reasoning_content", "thinking", "reasoning", "arguments"})


@dataclass(frozen=True)
class ParquetConversion:
    """Conversion of the rows of one Parquet file to the values of JSON lines.

    Attributes:
        has_non_json_values: True if a column has times, decimals, bytes or similar values, at any depth.
        object_columns: Columns with objects; keys with null are removed from the objects. `messages` is included only
            if one of its objects may become JSON text.
    """

    has_non_json_values: bool
    object_columns: tuple[str, ...]

    @classmethod
    def for_schema(cls, schema: pa.Schema) -> "ParquetConversion":
        with_objects = tuple(
            field.name
            for field in schema
            if (_has_objects_in_texts(field.type) if field.name == "messages" else _has_objects(field.type))
        )
        return cls(not all(_is_json(field.type) for field in schema), with_objects)

    def as_json_lines(self, columns: Mapping[str, Any]) -> dict[str, Any]:
        """Convert a row to JSON values, and remove nulls from its `object_columns`."""
        row = as_json(columns) if self.has_non_json_values else dict(columns)
        for column in self.object_columns:
            row[column] = _without_nulls(row[column])
        return row


def parquet_conversions(pieces: Iterable[object]) -> dict[str, ParquetConversion]:
    """Return a conversion for each Parquet file that has a piece, by file name."""
    files = {piece.file.name: piece.file for piece in pieces if isinstance(piece, RowGroupRun)}
    conversions = {}
    for name, file in files.items():
        with open_source(file) as opened:
            conversions[name] = ParquetConversion.for_schema(pq.read_schema(opened))
    return conversions


def as_json(value: Any) -> Any:
    """Convert a value to JSON types; times, decimals, bytes and UUIDs become text."""
    match value:
        case dict():
            return {key: as_json(item) for key, item in value.items()}
        case list() | tuple():
            return [as_json(item) for item in value]
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
            key: _without_nulls(item) if type(item) in (dict, list) else item
            for key, item in value.items()
            if item is not None
        }
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _has_objects(data_type: pa.DataType) -> bool:
    return pa.types.is_struct(data_type) or any(_has_objects(field.type) for field in _fields(data_type))


def _has_objects_in_texts(data_type: pa.DataType) -> bool:
    return any(
        _has_objects(field.type) if field.name in _MESSAGE_TEXTS else _has_objects_in_texts(field.type)
        for field in _fields(data_type)
    )


def _fields(data_type: pa.DataType) -> list[pa.Field]:
    return [data_type.field(index) for index in range(data_type.num_fields)]


def _is_json(data_type: pa.DataType) -> bool:
    if data_type.num_fields:
        return all(_is_json(field.type) for field in _fields(data_type)) and not pa.types.is_map(data_type)
    if pa.types.is_dictionary(data_type):
        return _is_json(data_type.value_type)
    names = (pa.types.is_string, pa.types.is_large_string, pa.types.is_integer, pa.types.is_floating)
    return any(test(data_type) for test in (*names, pa.types.is_boolean, pa.types.is_null))
