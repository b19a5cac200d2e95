"""Conditions on missing values select the rows that standard SQL selects.

DuckDB is the oracle.
"""

import duckdb
import polars as pl
import pytest
from real_samples import some

from pipeline_assets.corpus.nemotron.condition_sql import compile_condition
from pipeline_assets.corpus.nemotron.pools_recipe import condition_mask

ROWS = pl.DataFrame(
    {
        "number": [0, 1, 2, None, -1, 5],
        "other": [None, 1, 0, 2, None, 4],
        "flag": [True, False, None, True, None, False],
        "second": [True, True, False, None, True, False],
        "text": ["a", "", None, "B", "ab", "a%"],
    }
).with_row_index("row")
CONDITIONS = [
    *(f"{value} IS {word}" for value in ("flag", "(number > 0)") for word in ("TRUE", "FALSE", "NULL")),
    *(f"{value} IS NOT {word}" for value in ("flag", "(number > 0)") for word in ("TRUE", "FALSE", "NULL")),
    "NOT (flag IS TRUE)",
    "NOT (flag IS NOT FALSE)",
    "NOT flag",
    "flag AND second",
    "NOT (flag OR second)",
    "number IN (0, NULL)",
    "number = 5 OR number NOT IN (0, NULL)",
    "number NOT IN (0, 1)",
    "NOT (number = other)",
    "number <> other",
    "number NOT BETWEEN other AND 2",
    "text NOT LIKE 'a%'",
    "NOT (text ~ 'a')",
    "COALESCE(flag, second, TRUE)",
    "GREATEST(number, other) > 1",
    "number / 2 = 0.5",
    "LENGTH(text) - 2 < 0",
]


@pytest.mark.parametrize("condition", CONDITIONS)
def test_rows_with_missing_values_are_selected_as_in_standard_sql(condition: str) -> None:
    selected = ROWS.filter(compile_condition(condition, ROWS))["row"].to_list()

    with duckdb.connect() as connection:
        connection.register("made", ROWS.to_arrow())
        expected = [row for (row,) in connection.execute(f"SELECT row FROM made WHERE {condition}").fetchall()]

    assert selected == sorted(some(expected))


@pytest.mark.parametrize(
    ("condition", "holds"), [("COALESCE(1, stats_tokens) = 1", True), ("2 < COALESCE(1, stats_tokens)", False)]
)
@pytest.mark.parametrize("rows", [0, 1, 3])
def test_a_condition_that_no_value_changes_has_a_result_for_each_row(condition: str, holds: bool, rows: int) -> None:
    frame = pl.DataFrame({"stats_tokens": [None, 1, 2][:rows]}, {"stats_tokens": pl.Int64})

    assert condition_mask(frame, condition).tolist() == [holds] * rows
