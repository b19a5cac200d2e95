"""Rules over source columns: of a batch of rows, and of the columns that a document keeps."""

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline_assets.corpus.filters.verdict import Candidate, Filter, Measurement
from pipeline_assets.corpus.formats.parquet import array_of, truths
from pipeline_assets.corpus.spine.errors import UsageError

_RULE = re.compile(r"^\s*([A-Za-z_]\w*)\s*(>=|<=|==|!=|>|<)\s*(.+?)\s*$")
_COMPARE: dict[str, tuple[str, Callable[[Any, Any], bool]]] = {  # as Arrow names it, and of Python's values
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
        """Which rows pass, shape (rows,).

        Raises:
            UsageError: the batch has no such column, or one that can't be compared with the constant.
        """
        import pyarrow.compute as pc

        names = batch.schema.names
        if self.column not in names:
            fix = f"correct the rule; there are {', '.join(names)}"
            raise UsageError(f"there is no column `{self.column}`", f"rule `{self.text}`", fix)
        try:
            name, _ = _COMPARE[self.operator]
            verdict = pc.call_function(name, [batch.column(self.column), array_of([self.value])[0]])
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
            kind = batch.schema.field(self.column).type
            fix = "compare it with a value of that type"
            raise UsageError(f"column `{self.column}` is {kind}", f"rule `{self.text}`", fix) from None
        return truths(verdict)

    def measure(self, meta: Mapping[str, Any]) -> Measurement:
        """The rule held against the columns that a document keeps in its meta.

        Raises:
            UsageError: they have no such column, or one that can't be compared with the constant.
        """
        if self.column not in meta:
            fix = f"correct the rule; there are {', '.join(meta) or 'none'}"
            raise UsageError(f"there is no column `{self.column}`", f"rule `{self.text}`", fix)
        value = meta[self.column]
        kinds = str if isinstance(self.value, str) else (int, float)
        if value is not None and (not isinstance(value, kinds) or isinstance(value, bool)):
            fix = "compare it with a value of that type"
            raise UsageError(f"column `{self.column}` is {type(value).__name__}", f"rule `{self.text}`", fix)
        _, compare = _COMPARE[self.operator]
        is_passed = value is not None and compare(value, self.value)
        return Measurement(self.text, value, self.value, not is_passed)


def first_failed(rules: Sequence[ColumnRule], batch: pa.RecordBatch) -> NDArray[np.int8]:
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
