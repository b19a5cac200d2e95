"""How many rows of a row group pass the filters, as far as its footer tells: it has the least and greatest value."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline_assets.corpus.filters.column_rules import ColumnRule
from pipeline_assets.corpus.formats.arrow import array_of
from pipeline_assets.corpus.planning.estimate import Estimate
from pipeline_assets.corpus.readers.parquet import ColumnBounds, RowGroup

_PROBES = 64
_UNKNOWN = 0.5
BASIS = "rows, least and greatest values in the footers"


def passing_rows(group: RowGroup, rows: int, rules: Sequence[ColumnRule]) -> Estimate:
    """Rows of the first `rows` of a group that pass every rule.

    Where the bounds decide, it is exact: all pass `int_score >= 3` if the least is 3. Where they don't, any number may
    pass; the likely one takes the values between the bounds for equally frequent, and the rules for independent. NaN,
    which footers leave out of their bounds, is not thought of.

    Raises:
        UsageError: a column that can't be compared with its rule's constant.
    """
    bounds = {column.column: column for column in group.bounds}
    low, high, likely = rows, rows, float(rows)
    for rule in rules:
        fewest, share, most = _passing(rule, bounds.get(rule.column), group.rows, rows)
        low, high, likely = low - (rows - fewest), min(high, most), likely * share
    low = max(low, 0)
    return Estimate(low, min(max(round(likely), low), high), high, BASIS)


def _passing(rule: ColumnRule, column: ColumnBounds | None, group_rows: int, rows: int) -> tuple[int, float, int]:
    """(fewest rows, likely share, most rows) that pass one rule."""
    if column is not None and column.nulls == group_rows:
        return 0, 0.0, 0
    if column is None or column.least is None or column.greatest is None or column.nulls is None:
        return 0, _UNKNOWN, rows
    passes = _keeps(rule, _values_between(column.least, column.greatest))
    if rule.operator in ("==", "!=") and column.least != column.greatest and not _lies_outside(rule, column):
        passes = np.array([True, False, *passes]) if passes.all() or not passes.any() else passes
    share = float(passes.mean()) * (1 - column.nulls / max(group_rows, 1))
    if not passes.any():
        return 0, 0.0, 0
    most = rows if rows < group_rows else rows - column.nulls
    return max(rows - column.nulls, 0) if passes.all() else 0, share, most


def _lies_outside(rule: ColumnRule, column: ColumnBounds) -> bool:
    """Whether no value between the bounds is the rule's."""
    is_below = _keeps(replace(rule, operator=">"), [column.least])
    is_above = _keeps(replace(rule, operator="<"), [column.greatest])
    return bool(is_below[0] or is_above[0])


def _keeps(rule: ColumnRule, values: Sequence[Any]) -> NDArray[np.bool_]:
    return rule.keeps(pa.RecordBatch.from_arrays([array_of(values)], [rule.column]))


def _values_between(least: Any, greatest: Any) -> list[Any]:
    """Some values from the least to the greatest, both among them, evenly spread; of text the two alone."""
    if least == greatest:
        return [least]
    if isinstance(least, int) and isinstance(greatest, int) and not isinstance(least, bool):
        if greatest - least < _PROBES:
            return list(range(least, greatest + 1))
        return [least + (greatest - least) * step // (_PROBES - 1) for step in range(_PROBES)]
    if isinstance(least, float) and isinstance(greatest, float) and np.isfinite([least, greatest]).all():
        return [*np.linspace(least, greatest, _PROBES - 1).tolist(), greatest]
    return [least, greatest]
