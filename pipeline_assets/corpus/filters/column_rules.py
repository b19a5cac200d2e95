"""Rules on the columns of source rows, applied to Arrow batches or to documents."""

import contextlib
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pydantic
from numpy.typing import NDArray

from pipeline_assets.corpus.filters.filter import Measurement
from pipeline_assets.corpus.formats.arrow_columns import string_column, to_arrow, to_bools
from pipeline_assets.spine.errors import UsageError

_RULE = re.compile(r"^\s*([A-Za-z_]\w*)\s*(>=|<=|==|!=|>|<)\s*(.+?)\s*$")
_OPERATORS: dict[str, tuple[Callable[[Any, Any], bool], str]] = {  # functions of Python and of Arrow
    ">=": (operator.ge, "greater_equal"),
    "<=": (operator.le, "less_equal"),
    "==": (operator.eq, "equal"),
    "!=": (operator.ne, "not_equal"),
    ">": (operator.gt, "greater"),
    "<": (operator.lt, "less"),
}
_TEXT_TYPES = ("str", "string", "large_string", "string_view")
_INCOMPARABLE_TYPES = ("bool", "list", "large_list", "struct", "map", "timestamp", "date", "time", "duration")


@dataclass(frozen=True)
class ColumnRule:
    """Comparison of a source column with a constant; a null value fails the rule.

    `text` is the rule with single spaces, such as `int_score >= 3`; it is also the reason code of rows that fail.
    """

    text: str
    column: str
    operator: str
    constant: int | float | str

    @classmethod
    def parse(cls, text: str) -> "ColumnRule":
        """Parse a rule such as `int_score >= 3`; raise ValueError if it is malformed."""
        match = _RULE.match(text)
        if match is None:
            raise ValueError(f'{text!r} is not a rule; write `column >= 3` or `column == "en"`')
        column, operator, constant = match.groups()
        return cls(f"{column} {operator} {constant}", column, operator, _parse_constant(constant))

    def passing_mask(self, batch: pa.RecordBatch) -> NDArray[np.bool_]:
        """Return a mask of the rows that pass, shape (rows,).

        The values are compared by Arrow, because rows with invalid UTF-8 cannot be converted to Python strings. Raise
        UsageError if the column is missing, or if its type cannot be compared with the constant.
        """
        import pyarrow.compute as pc

        if self.column not in batch.schema.names:
            raise self.missing_column_error(batch.schema.names)
        if isinstance(self.constant, str):
            scalar = string_column([self.constant])
        else:
            is_int64 = isinstance(self.constant, int) and -(2**63) <= self.constant < 2**63
            scalar = to_arrow(np.array([self.constant], np.int64 if is_int64 else np.float64))
        column = _to_comparable(batch.column(self.column))
        compare, arrow_function = _OPERATORS[self.operator]
        try:
            return to_bools(pc.call_function(arrow_function, [column, scalar[0]]))
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
            is_number = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
            if isinstance(self.constant, str) or not is_number:
                raise self.comparison_error(batch.column(self.column).type) from None
        # No type of Arrow has both the constant and an integer of the column, such as 2.5 and 2^53 + 1.
        return np.array([value is not None and compare(value, self.constant) for value in column.to_pylist()], np.bool_)

    def measure(self, meta: Mapping[str, Any]) -> Measurement:
        """Apply the rule to a document's meta; a null value fails the rule.

        Raise UsageError if the column is missing, or if the value's type cannot be compared with the constant.
        """
        is_known = {"source_file", "source_row"} <= meta.keys()
        row = f"; its row is {meta['source_file']}#{meta['source_row']}" if is_known else ""
        if self.column not in meta:
            raise self.missing_column_error(meta, f"correct the rule{row and f', or add the column{row}'}")
        value, comparable = meta[self.column], str if isinstance(self.constant, str) else (int, float)
        if value is not None and (not isinstance(value, comparable) or isinstance(value, bool)):
            raise self.comparison_error(type(value).__name__, row)
        compare, _ = _OPERATORS[self.operator]
        return Measurement(self.text, value, self.constant, value is None or not compare(value, self.constant))

    def missing_column_error(self, columns: Iterable[str], fix: str = "correct the rule") -> UsageError:
        """Return the error for a table that has `columns`, but not the rule's column."""
        what = f"column `{self.column}` not found; the columns are {', '.join(columns) or 'none'}"
        return UsageError(what, f"rule `{self.text}`", fix)

    def comparison_error(self, column_type: object, row_hint: str = "") -> UsageError:
        """Return the error for a column type that the rule cannot compare."""
        fix = "compare it with a value of that type"
        if column_type == "dict" or str(column_type).startswith(_INCOMPARABLE_TYPES):
            fix = "remove the rule, because rules compare numbers and texts only"
        elif str(column_type) in _TEXT_TYPES and not isinstance(self.constant, str):
            fix = 'write its values as numbers, or compare them in an own step; as texts, "10" is below "9"'
        # Snapshots store the first argument as the detail of a reject, so it must not change.
        return UsageError(f"column `{self.column}` is {column_type}", f"rule `{self.text}`", f"{fix}{row_hint}")


def _to_comparable(column: pa.Array) -> pa.Array:
    """Convert a column to a type that Arrow compares; texts may be invalid UTF-8."""
    if pa.types.is_dictionary(column.type):
        return _to_comparable(column.dictionary_decode())
    if pa.types.is_float16(column.type):
        return column.cast(pa.float32())
    if pa.types.is_string_view(column.type) or pa.types.is_binary_view(column.type):
        return column.cast(pa.large_binary())  # bytes have the order of texts
    return column


def _check_rules(rules: tuple[str, ...]) -> tuple[str, ...]:
    for rule in rules:
        ColumnRule.parse(rule)
    return rules


ColumnRules = Annotated[tuple[str, ...], pydantic.Field(strict=False), pydantic.AfterValidator(_check_rules)]
"""Rules of a recipe as text, each checked by `ColumnRule.parse`."""


def first_failed_rules(rules: Sequence[ColumnRule], batch: pa.RecordBatch) -> NDArray[np.int8]:
    """Return the index of the first rule that each row fails, or -1; shape (rows,)."""
    failed = np.full(batch.num_rows, -1, np.int8)
    for number, rule in enumerate(rules):
        failed[(failed < 0) & ~rule.passing_mask(batch)] = number
    return failed


def _parse_constant(text: str) -> int | float | str:
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" and text[0] not in text[1:-1]:
        return text[1:-1]
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            if not math.isnan(value := kind(text)):
                return value
    raise ValueError(f"{text!r} is not a constant; write a number or quoted text")
