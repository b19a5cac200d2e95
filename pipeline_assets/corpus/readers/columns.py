"""Columns of a source by name or path.

The path `metadata.url` is the field `url` of the object `metadata`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from pipeline_assets.corpus.readers.column_recipe import ColumnChoice, column_fix
from pipeline_assets.corpus.readers.faults import NESTED_TOO_DEEP, Fault, Row, utf8_fault
from pipeline_assets.corpus.readers.nesting import MAX_NESTING, is_nested_within
from pipeline_assets.corpus.readers.stdlib_times import to_stdlib_times
from pipeline_assets.spine.errors import InputError, UsageError, one_line

# Invalid UTF-8 or an offset beyond a day (ValueError), an unknown time zone, a time outside Python's range.
_VALUE_ERRORS = (ValueError, LookupError, OverflowError)


def _column_paths(schema: pa.Schema | pa.StructType, prefix: str = "") -> Iterator[str]:
    """Yield the paths of all columns; a struct is replaced by the columns inside it."""
    for field in schema:
        if pa.types.is_struct(field.type):
            yield from _column_paths(field.type, f"{prefix}{field.name}.")
        else:
            yield prefix + field.name


def check_columns(schema: pa.Schema, columns: Iterable[tuple[str, ColumnChoice]], where: object) -> None:
    """Raise UsageError if a file lacks columns that the recipe requires.

    `columns` has pairs (Document field, name or names). A single name must be in the file; alternatives need not be.
    Raise InputError if two columns have the same name. `where` is the file's name for error messages.
    """
    if repeated := next((name for name, count in Counter(schema.names).items() if count > 1), None):
        raise InputError(f"two columns have the name `{repeated}`", where, "rename one of them")
    paths = list(_column_paths(schema))
    known = {*schema.names, *paths}  # a struct is a column, too
    if missing := {field: f"column `{name}`" for field, name in columns if isinstance(name, str) and name not in known}:
        what = f"{', '.join(missing.values())} not found; the columns are {', '.join(paths)}"
        raise UsageError(what, where, "; ".join(map(column_fix, missing)))


class Column(NamedTuple):
    """Column of a row; the value is `parent[key]`."""

    parent: dict[str, Any]
    key: str
    name: str  # in the recipe

    @property
    def value(self) -> Any:
        return self.parent[self.key]


def find_column(row: dict[str, Any], name: str) -> Column | None:
    """Find a row's column by name, or by path if no name matches; None if missing."""
    if name in row:
        return Column(row, name, name)
    if "." not in name:
        return None
    parent: Any = row
    *path, last = name.split(".")
    for part in path:
        parent = parent.get(part)
        if not isinstance(parent, dict):
            return None
    return Column(parent, last, name) if last in parent else None


def column_values(column: pa.Array) -> list[Any]:
    """Convert an Arrow column to Python values; each invalid value becomes a `Fault`.

    Times in nanoseconds become times of the standard library, or text if they are finer than a microsecond.
    """
    try:
        values: list[Any] = column.to_pylist()
    except _VALUE_ERRORS:
        values = [_read_value(scalar) for scalar in column]
    if str(column.type).count("<") > MAX_NESTING:
        values = [value if is_nested_within(value) else NESTED_TOO_DEEP for value in values]
    return [to_stdlib_times(value) for value in values] if "[ns" in str(column.type) else values


def faults_by_row(columns: Sequence[list[Any]]) -> dict[int, Fault]:
    """Return the first fault of each faulty row, by row number from 0."""
    return {
        number: value
        for column in reversed(columns)
        if Fault in set(map(type, column))  # almost always false, and cheaper than a test per value
        for number, value in enumerate(column)
        if isinstance(value, Fault)
    }


def _read_value(scalar: pa.Scalar) -> Any:
    """Convert one Arrow scalar to a Python value, or to a Fault if that is impossible."""
    try:
        return scalar.as_py()
    except UnicodeDecodeError as error:
        return utf8_fault(error)
    except _VALUE_ERRORS as error:
        return Fault("unreadable_value", one_line(error))


def convert_batch(batch: pa.RecordBatch) -> Iterator[Row]:
    """Yield each row of a batch: its Python values by column name, or its first fault."""
    names = batch.schema.names
    columns = [column_values(column) for column in batch.columns]
    faults = faults_by_row(columns)
    for number, values in enumerate(zip(*columns, strict=True)):
        yield faults.get(number) or dict(zip(names, values, strict=True))
