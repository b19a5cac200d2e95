"""Filter by rules on the columns of documents' meta."""

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pipeline_assets.corpus.filters.column_rules import ColumnRule
from pipeline_assets.corpus.filters.filter import Candidate, Filter, Measurement

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}


class ColumnFilter(Filter):
    """Filter by rules on the columns of documents' meta."""

    def __init__(self, rules: Sequence[str]) -> None:
        self._rules = [ColumnRule.parse(rule) for rule in rules]

    def measure(self, candidate: Candidate) -> Iterator[Measurement]:
        """Yield a measurement of each rule on a document's meta."""
        return (measure_rule(rule, candidate.meta) for rule in self._rules)


def measure_rule(rule: ColumnRule, meta: Mapping[str, Any]) -> Measurement:
    """Apply a rule to a document's meta; a null value fails the rule.

    Raise UsageError if the column is missing, or if the value's type cannot be compared with the rule's constant.
    """
    if rule.column not in meta:
        row = _row_hint(meta)
        raise rule.missing_column_error(meta, f"correct the rule{row and f', or add the column{row}'}")
    value, comparable = meta[rule.column], str if isinstance(rule.constant, str) else (int, float)
    if value is not None and (not isinstance(value, comparable) or isinstance(value, bool)):
        raise rule.comparison_error(type(value).__name__, _row_hint(meta))
    is_passed = value is not None and _OPERATORS[rule.operator](value, rule.constant)
    return Measurement(rule.text, value, rule.constant, not is_passed)


def _row_hint(meta: Mapping[str, Any]) -> str:
    """Return error text that names the source row; empty if the row is unknown."""
    is_known = {"source_file", "source_row"} <= meta.keys()
    return f"; its row is {meta['source_file']}#{meta['source_row']}" if is_known else ""
