"""Values that Parquet has and JSON has not, as JSON: a row is the same whichever of the two it was published as."""

import base64
import datetime
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline_assets.corpus.readers.local_parquet import RowGroupRun
from pipeline_assets.corpus.readers.source_files import open_source


def files_with_other_values(pieces: Iterable[object]) -> set[str]:
    """Names of the Parquet files among them that have a column of times, decimals or bytes, at any depth."""
    files = {piece.file.name: piece.file for piece in pieces if isinstance(piece, RowGroupRun)}
    found = set()
    for name, file in files.items():
        with open_source(file) as opened:
            if not all(_is_json(field.type) for field in pq.read_schema(opened)):
                found.add(name)
    return found


def as_json(value: Any) -> Any:
    """The value; times in ISO 8601, decimals as text to the last digit, bytes as their UTF-8, else in base64."""
    match value:
        case dict():
            return {key: as_json(one) for key, one in value.items()}
        case list() | tuple():
            return [as_json(one) for one in value]
        case datetime.date() | datetime.time():  # a datetime is a date
            return value.isoformat()
        case datetime.timedelta() | Decimal():
            return str(value)
        case bytes():
            try:
                return value.decode("utf-8")
            except UnicodeDecodeError:
                return base64.b64encode(value).decode("ascii")
    return value


def _is_json(kind: pa.DataType) -> bool:
    if kind.num_fields:
        return all(_is_json(kind.field(place).type) for place in range(kind.num_fields)) and not pa.types.is_map(kind)
    if pa.types.is_dictionary(kind):
        return _is_json(kind.value_type)
    names = (pa.types.is_string, pa.types.is_large_string, pa.types.is_integer, pa.types.is_floating)
    return any(test(kind) for test in (*names, pa.types.is_boolean, pa.types.is_null))
