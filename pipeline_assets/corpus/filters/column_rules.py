"""Rules over source columns, on a batch of rows and on the columns that a document keeps in its meta."""

import operator
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pydantic
from numpy.typing import NDArray

from pipeline_assets.corpus.filters.filter import Candidate, Filter, Measurement
from pipeline_assets.corpus.formats.arrow_columns import strings, to_array, truths
from pipeline_assets.spine.errors import UsageError

_RULE = re.compile(r"^\s*([A-Za-z_]\w*)\s*(>=|<=|==|!=|>|<)\s*(.+?)\s*$")
_COMPARE: dict[str, tuple[str, Callable[[Any, Any], bool]]] = {  # Arrow's function, and that of Python's values
    ">=": ("greater_equal", operator.ge),
    "<=": ("less_equal", operator.le),
    "==": ("equal", operator.eq),
    "!=": ("not_equal", operator.ne),
    ">": ("greater", operator.gt),
    "<": ("less", operator.lt),
}


@dataclass(frozen=True)
class ColumnRule:
    """A comparison of a source column with a constant; a null column fails it.

    Attributes:
        text: as the recipe has it, `int_score >= 3`: it is also the reason code of what it drops.
    """

    text: str
    column: str
    operator: str
    value: int | float | str

    @classmethod
    def parse(cls, text: str) -> "ColumnRule":
        """
        Raises:
            ValueError: not `column operator constant`.
        """
        match = _RULE.match(text)
        if match is None:
            raise ValueError(f'{text!r} is no rule; write `column >= 3` or `column == "en"`')
        column, operator, constant = match.groups()
        return cls(f"{column} {operator} {constant}", column, operator, _constant(constant))

    def keeps(self, batch: pa.RecordBatch) -> NDArray[np.bool_]:
        """Check which rows pass, shape (rows,), by Arrow: values that are no UTF-8 have not been rejected yet.

        Raises:
            UsageError: the batch has no such column, or one that can't be compared with the constant.
        """
        import pyarrow.compute as pc

        self._require_column(batch.schema.names)
        if isinstance(self.value, str):
            constant = strings([self.value])
        else:
            is_int64 = isinstance(self.value, int) and -(2**63) <= self.value < 2**63
            constant = to_array(np.array([self.value], np.int64 if is_int64 else np.float64))
        column, (function, _) = batch.column(self.column), _COMPARE[self.operator]
        try:
            return truths(pc.call_function(function, [column, constant[0]]))
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
            raise self._not_comparable(column.type) from None

    def measure(self, meta: Mapping[str, Any]) -> Measurement:
        """Apply the rule to the columns that a document keeps in its meta; raise as `keeps`."""
        self._require_column(meta)
        value, (_, compare) = meta[self.column], _COMPARE[self.operator]
        comparable = str if isinstance(self.value, str) else (int, float)
        if value is not None and (not isinstance(value, comparable) or isinstance(value, bool)):
            raise self._not_comparable(type(value).__name__)
        is_passed = value is not None and compare(value, self.value)
        return Measurement(self.text, value, self.value, not is_passed)

    def _require_column(self, columns: Collection[str]) -> None:
        if self.column not in columns:
            fix = f"correct the rule; there are {', '.join(columns) or 'none'}"
            raise UsageError(f"there is no column `{self.column}`", f"rule `{self.text}`", fix)

    def _not_comparable(self, kind: object) -> UsageError:
        fix = "compare it with a value of that type"
        return UsageError(f"column `{self.column}` is {kind}", f"rule `{self.text}`", fix)


def _can_be_read(rules: tuple[str, ...]) -> tuple[str, ...]:
    for rule in rules:
        ColumnRule.parse(rule)
    return rules


Rules = Annotated[tuple[str, ...], pydantic.Field(strict=False), pydantic.AfterValidator(_can_be_read)]
"""Rules of a recipe as it has them, such as `int_score >= 3`."""


def first_failed_rule(rules: Sequence[ColumnRule], batch: pa.RecordBatch) -> NDArray[np.int8]:
    """For each row the number of the first rule it fails, -1 where it passes all; shape (rows,)."""
    failed = np.full(batch.num_rows, -1, np.int8)
    for number, rule in enumerate(rules):
        failed[(failed < 0) & ~rule.keeps(batch)] = number
    return failed


def _constant(text: str) -> int | float | str:
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    raise ValueError(f"{text!r} is no constant; write a number, or text in quotes")


class ColumnFilter(Filter):
    """The rules of a recipe over the columns that documents keep in their meta."""

    def __init__(self, rules: Sequence[str]) -> None:
        self._rules = [ColumnRule.parse(rule) for rule in rules]

    def measure(self, candidate: Candidate) -> Iterator[Measurement]:
        """What each rule sees."""
        return (rule.measure(candidate.meta) for rule in self._rules)
