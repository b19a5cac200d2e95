"""Columns of a source, by name or by path: which is which field of a Document, and values that no Document can hold.

`metadata.url` is `url` of the object `metadata`. Such a value is a fault of its row.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from pipeline_assets.corpus.readers.column_recipe import another_column
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.ledger import Reject

# Objects and lists inside one another in a value of a row. Far below where Python's stack ends, which depends on who
# calls: a row's fate must not.
MAX_NESTING = 64


@dataclass(frozen=True)
class Fault:
    """Why a row, or one value of it, can't be used; reason and detail as in `Reject`."""

    reason: str
    detail: str = ""

    def rejected(self, file: str, row: int) -> Reject:
        """The row of a file that has the fault."""
        return Reject(file, row, self.reason, self.detail)


NESTED_TOO_DEEP = Fault("nested_too_deep", f"more than {MAX_NESTING} objects and lists inside one another")


_NESTING = frozenset((dict, list, tuple))


def is_nested_within(value: object, levels: int = MAX_NESTING) -> bool:
    """Whether there are at most so many objects and lists inside one another; a map of Arrow is a list of tuples."""
    level: list[Any] = [value] if type(value) in _NESTING else []
    for _ in range(levels):  # a level at a time takes half as long as a call for each value
        if not level:
            return True
        insides = (one.values() if type(one) is dict else one for one in level)
        level = [one for inside in insides for one in inside if type(one) in _NESTING]
    return not level


def utf8_fault(error: UnicodeDecodeError) -> Fault:
    """Which kind of bytes is no UTF-8: a surrogate that stands for no character, or others."""
    try:
        error.object.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return Fault("invalid_utf8", f"{error.reason} at byte {error.start}")
    return Fault("lone_surrogate", f"at byte {error.start}")


def _column_paths(schema: pa.Schema | pa.StructType, above: str = "") -> Iterator[str]:
    """Names of all columns, those inside structs with their path."""
    for field in schema:
        if pa.types.is_struct(field.type):
            yield from _column_paths(field.type, f"{above}{field.name}.")
        else:
            yield above + field.name


def check_columns(
    schema: pa.Schema, columns: Iterable[tuple[str, str | tuple[str, ...] | None]], where: object
) -> None:
    """Raise UsageError if a column is missing; it names those present.

    Args:
        columns: field of a Document and its column; of several, or None, none needs be there.
    """
    for field, name in columns:
        there = list(_column_paths(schema))
        if isinstance(name, str) and name not in schema.names and name not in there:
            what = f"there is no column `{name}`; it has {', '.join(there)}"
            raise UsageError(what, where, another_column(field))


class Column(NamedTuple):
    """A column of a row: the object that holds it, its key there, and its name in a recipe."""

    holder: dict[str, Any]
    key: str
    name: str

    @property
    def value(self) -> Any:
        """What the row has there."""
        return self.holder[self.key]


def find_column(row: dict[str, Any], name: str) -> Column | None:
    """The column of a name or path; None if the row has no such column."""
    if name in row:
        return Column(row, name, name)
    holder: Any = row
    *path, last = name.split(".")
    for part in path:
        holder = holder.get(part)
        if not isinstance(holder, dict):
            return None
    return Column(holder, last, name) if last in holder else None


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
        values = [value if is_nested_within(value) else NESTED_TOO_DEEP for value in values]
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


def read_rows(batch: pa.RecordBatch) -> Iterator[dict[str, Any] | Fault]:
    """Each row, its values as `column_values` has them; a row with one that can't be used is its first fault."""
    names = batch.schema.names
    columns = [column_values(column) for column in batch.columns]
    faults = faulty_rows(columns)
    for number, values in enumerate(zip(*columns, strict=True)):
        yield faults.get(number) or dict(zip(names, values, strict=True))
