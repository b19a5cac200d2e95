"""Percentiles as a naive computation has them; scores beside the rows that they are of."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from real_samples import some
from score_files import naive_percentile, scored_row, write_scores

from pipeline_assets.corpus.scoring.scores import COLUMNS, SCORES, percentiles
from pipeline_assets.spine.errors import InputError

scores_with_ties_and_nulls = st.lists(st.one_of(st.none(), st.integers(0, 5).map(float), st.floats(0, 20)), max_size=30)


@given(scores_with_ties_and_nulls)
def test_percentiles_are_those_of_a_naive_computation(values: list[float | None]) -> None:
    found = percentiles(np.array([np.nan if value is None else value for value in values], np.float64))

    there = [value for value in values if value is not None]
    expected = [np.nan if value is None else float(naive_percentile(value, there)) for value in values]
    assert found.tolist() == pytest.approx(expected, nan_ok=True, rel=1e-12)


def test_every_column_is_explained() -> None:
    assert list(COLUMNS) == SCORES.names


def test_scores_stand_beside_the_rows_that_they_are_of(tmp_path: Path) -> None:
    split = write_scores(tmp_path, "math/high", [scored_row(number, 1.0) for number in range(21)])

    tables = list(split.rows(["nll_mean"], ["id", "meta_domain", "nowhere"]))

    assert [one for table in tables for one in table["id"].to_pylist()] == [f"row-{number}" for number in range(21)]
    assert all(table["nowhere"].null_count == len(table) for table in tables)
    assert [len(table) for table in split.rows(["nll_mean"], ["nowhere"])] == [len(table) for table in tables]


def test_columns_of_a_pool_that_are_not_asked_for_are_not_read(tmp_path: Path) -> None:
    split = write_scores(tmp_path, "math/high", [scored_row(number, 1.0) for number in range(21)])
    for path in some(split.pool_files.values()):
        ids = pq.read_metadata(path).row_group(0).column(0)
        with open(path, "r+b") as file:
            file.seek(ids.dictionary_page_offset)
            file.write(bytes(ids.total_compressed_size))

    tables = list(split.rows(["nll_mean"], ["meta_domain"]))

    assert sum(len(table) for table in tables) == 21


def test_a_pool_that_lost_rows_is_named(tmp_path: Path) -> None:
    split = write_scores(tmp_path, "math/high", [scored_row(number, 1.0) for number in range(4)])
    pool = split.pool_files["b.parquet"]
    pq.write_table(pq.read_table(pool).slice(0, 3), pool)

    with pytest.raises(InputError, match="row 3 was scored, but the file has only 3 rows"):
        list(split.rows([], ["id"]))
