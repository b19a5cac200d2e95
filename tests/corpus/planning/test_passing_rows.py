"""Rows that pass, as far as footers tell: exact where the bounds settle it, else between bounds that always hold."""

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_assets.corpus.filters.column_rules import ColumnRule, first_failed
from pipeline_assets.corpus.planning.passing_rows import passing_rows
from pipeline_assets.corpus.readers.hub_files import HubFile
from pipeline_assets.corpus.readers.parquet import Footer, RowGroup, row_groups
from pipeline_assets.corpus.spine.errors import UsageError

FILE = HubFile("a.parquet", 1, "sha256:0")
COLUMNS = ["score", "share", "language"]


def group_of(columns: dict[str, pa.Array]) -> RowGroup:
    """The row group of a real file of these columns, as its footer tells it."""
    rows = len(next(iter(columns.values())))
    output = io.BytesIO()
    pq.write_table(pa.table({"text": ["text"] * rows, **columns}), output)
    [group] = row_groups(Footer(pq.read_metadata(output), ()), FILE, "text", "here", COLUMNS)
    return group


def scores(*values: int | None) -> dict[str, pa.Array]:
    return {"score": pa.array(values, pa.int64())}


def bounds(columns: dict[str, pa.Array], *rules: str, rows: int | None = None) -> tuple[float, float, float]:
    group = group_of(columns)
    return passing_rows(group, group.rows if rows is None else rows, [ColumnRule.parse(rule) for rule in rules]).bounds


@pytest.mark.parametrize(
    ("values", "rule", "passing"),
    [
        ((3, 4, 5), "score >= 3", 3),
        ((3, 4, 5), "score > 5", 0),
        ((1, 2, 2), "score >= 3", 0),
        ((3, 3, 3), "score == 3", 3),
        ((3, 3, 3), "score != 3", 0),
        ((4, 5, 9), "score == 3", 0),
        ((4, 5, 9), "score != 3", 3),
        ((3, 4, None), "score >= 3", 2),
        ((None, None), "score >= 3", 0),
    ],
)
def test_where_the_bounds_settle_it_the_number_is_exact(values: tuple[Any, ...], rule: str, passing: int) -> None:
    assert bounds(scores(*values), rule) == (passing, passing, passing)


def test_where_they_do_not_any_number_may_pass_and_values_between_are_taken_for_equally_frequent() -> None:
    assert bounds(scores(2, 5, 5, 5), "score >= 3") == (0, 3, 4)  # 3, 4 and 5 of 2, 3, 4 and 5
    assert bounds(scores(0, 100), "score == 50", rows=2) == (0, 0, 2)


def test_rules_narrow_each_other() -> None:
    columns = scores(*range(100)) | {"language": pa.array(["en"] * 100)}

    assert bounds(columns, "score >= 50", 'language == "en"') == (0, 50, 100)
    assert bounds(columns, "score >= 50", "score < 50") == (0, 25, 100)


def test_without_rules_every_row_passes() -> None:
    assert bounds(scores(1, 2)) == (2, 2, 2)


def test_of_a_column_without_bounds_nothing_is_known() -> None:
    group = RowGroup(FILE, 0, 0, 10, 0, 100, 50)

    assert passing_rows(group, 10, [ColumnRule.parse("score >= 3")]).bounds == (0, 5, 10)


def test_the_first_rows_of_a_group_may_hold_all_of_its_nulls_or_none() -> None:
    assert bounds(scores(3, 4, None, None), "score >= 3", rows=3) == (1, 2, 3)


def test_a_constant_of_another_type_is_refused_as_the_build_would() -> None:
    with pytest.raises(UsageError) as error:
        bounds({"language": pa.array(["en", "fr"])}, "language >= 3")

    assert str(error.value) == "rule `language >= 3`: column `language` is string; compare it with a value of that type"


columns_of_a_group = st.integers(1, 30).flatmap(
    lambda rows: st.fixed_dictionaries(
        {
            "score": st.lists(st.none() | st.integers(-3, 9), min_size=rows, max_size=rows).map(
                lambda values: pa.array(values, pa.int64())
            ),
            "share": st.lists(st.none() | st.floats(-2, 2), min_size=rows, max_size=rows).map(
                lambda values: pa.array(values, pa.float64())
            ),
            "language": st.lists(st.none() | st.sampled_from(["", "de", "en", "fr"]), min_size=rows, max_size=rows).map(
                lambda values: pa.array(values, pa.string())
            ),
        }
    )
)
a_rule = st.builds(
    lambda column, operator: f"{column[0]} {operator} {column[1]}",
    st.sampled_from([("score", 3), ("share", 0.5), ("language", '"en"')]),
    st.sampled_from(["==", "!=", "<", "<=", ">", ">="]),
)


@given(columns_of_a_group, st.lists(a_rule, max_size=3), st.data())
def test_what_really_passes_lies_between_the_bounds(
    columns: dict[str, pa.Array], rules: list[str], data: st.DataObject
) -> None:
    group = group_of(columns)
    rows = data.draw(st.integers(1, group.rows))
    parsed = [ColumnRule.parse(rule) for rule in rules]
    batch = pa.RecordBatch.from_pydict(columns).slice(0, rows)

    estimate = passing_rows(group, rows, parsed)

    passing = int(np.sum(first_failed(parsed, batch) < 0))
    assert estimate.low <= passing <= estimate.high
    assert estimate.low <= estimate.likely <= estimate.high
