"""Conversion of Parquet values to the values that JSON lines would have.

Parquet stores a missing key as null, like an explicit null. So nulls in objects are removed; nulls in lists are kept.
Parquet does not store the order of keys, so the properties of a tool may be rendered in another order.
"""

import base64
import datetime
import uuid
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline_assets.corpus.readers.local_parquet import RowGroupRun
from pipeline_assets.corpus.readers.source_folder import open_source

# Message keys whose value may become JSON text, where null would not count as absent.
_MESSAGE_TEXT_KEYS = frozenset({"content", "reasoning_content", "thinking", "reasoning", "arguments"})
_JSON_TYPES = frozenset({str, int, float, bool, type(None)})  # most values, which need no call


def find_object_columns(pieces: Iterable[object]) -> dict[str, list[str]]:
    """Map the name of each Parquet file to its columns that are or contain structs.

    `messages` always contains structs. It is listed only if a field that may become JSON text (`_MESSAGE_TEXT_KEYS`)
    contains structs. Pieces that are not Parquet are skipped.
    """
    files = {piece.file.name: piece.file for piece in pieces if isinstance(piece, RowGroupRun)}
    columns = {}
    for name, file in files.items():
        with open_source(file) as opened:
            schema = pq.read_schema(opened)
        columns[name] = [
            field.name
            for field in schema
            if (_has_objects_in_texts(field.type) if field.name == "messages" else _has_structs(field.type))
        ]
    return columns


def to_json_row(row: Mapping[str, Any], object_columns: Iterable[str]) -> dict[str, Any]:
    """Convert a row to JSON values, without nulls in the objects of `object_columns`."""
    converted: dict[str, Any] = to_json_value(row)
    for column in object_columns:
        converted[column] = _without_nulls(converted[column])
    return converted


def to_json_value(value: Any) -> Any:
    """Convert a value to JSON types: times, decimals, UUIDs and bytes become text.

    Bytes that are not UTF-8 are encoded in base64.
    """
    match value:
        case dict():
            return {key: item if type(item) in _JSON_TYPES else to_json_value(item) for key, item in value.items()}
        case list() | tuple():
            return [item if type(item) in _JSON_TYPES else to_json_value(item) for item in value]
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


def _has_structs(data_type: pa.DataType) -> bool:
    return pa.types.is_struct(data_type) or any(_has_structs(field.type) for field in _child_fields(data_type))


def _has_objects_in_texts(data_type: pa.DataType) -> bool:
    return any(
        _has_structs(field.type) if field.name in _MESSAGE_TEXT_KEYS else _has_objects_in_texts(field.type)
        for field in _child_fields(data_type)
    )


def _child_fields(data_type: pa.DataType) -> list[pa.Field]:
    return [data_type.field(index) for index in range(data_type.num_fields)]
