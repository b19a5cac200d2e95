"""Percentiles of scores, rows joined with their pools, previews and summaries."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from real_samples import some
from score_files import naive_percentile, scored_row, write_scores

from pipeline_assets.corpus.scoring.scored_split import read_pool_rows
from pipeline_assets.corpus.scoring.scores import (
    COLUMN_DESCRIPTIONS,
    SCORES_FILE,
    SCORES_SCHEMA,
    percentiles,
    preview_rows,
    scored_summary,
    scores_are_stable,
    subsets_have_rows,
)
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.manifest import Identity, Manifest, StageVersion, StoredFile


def scores_artifact(folder: Path, **decisions: object) -> Artifact:
    identity = Identity(StageVersion("nll_scores", 1), {}, [], None, decisions, {}, [])
    return Artifact(folder, Manifest("nemotron/nll_scores", "made", identity, [StoredFile(SCORES_FILE, 1, "")], {}))


scores_with_ties_and_nulls = st.lists(st.one_of(st.none(), st.integers(0, 5).map(float), st.floats(0, 20)), max_size=30)


@given(scores_with_ties_and_nulls)
def test_percentiles_equal_a_naive_computation(values: list[float | None]) -> None:
    ranks = percentiles(np.array([np.nan if value is None else value for value in values], np.float64))

    finite = [value for value in values if value is not None]
    expected = [np.nan if value is None else float(naive_percentile(value, finite)) for value in values]
    assert ranks.tolist() == pytest.approx(expected, nan_ok=True, rel=1e-12)


def test_every_column_is_explained() -> None:
    assert list(COLUMN_DESCRIPTIONS) == SCORES_SCHEMA.names


def test_scores_are_joined_with_their_pool_rows(tmp_path: Path) -> None:
    split = write_scores(tmp_path, "math/high", [scored_row(number, 1.0) for number in range(21)])

    tables = list(split.rows(["nll_mean"], ["id", "meta_domain", "nowhere"]))

    assert [row for table in tables for row in table["id"].to_pylist()] == [f"row-{number}" for number in range(21)]
    assert all(table["nowhere"].null_count == len(table) for table in tables)
    assert [len(table) for table in split.rows(["nll_mean"], ["nowhere"])] == [len(table) for table in tables]


def test_only_requested_pool_columns_are_read(tmp_path: Path) -> None:
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
    with pytest.raises(InputError, match="row -1 was scored, but the file has only 3 rows"):
        list(read_pool_rows(pool, np.array([-1, 2]), ["id"]))


@pytest.mark.parametrize(("rows", "previewed"), [(0, 0), (9, 9), (12, 10)])
def test_a_preview_has_at_most_ten_rows(rows: int, previewed: int, tmp_path: Path) -> None:
    write_scores(tmp_path, "math/high", [scored_row(number, 1.23456) for number in range(rows)])

    assert len(preview_rows(scores_artifact(tmp_path))) == previewed


def test_a_preview_rounds_numbers_and_leaves_missing_values_empty(tmp_path: Path) -> None:
    write_scores(tmp_path, "math/high", [scored_row(0, 1.23456), scored_row(1, None)])

    columns = {"percentile within split": "", "bits per byte": "", "completion token count": "4"}
    assert preview_rows(scores_artifact(tmp_path)) == [
        {"id": "row-0", "nll mean": "1.235", **columns, "reason": ""},
        {"id": "row-1", "nll mean": "", **columns, "reason": "no_completion"},
    ]


def test_a_summary_counts_rows_by_reason_in_alphabetical_order() -> None:
    counts = {"documents": 3000, "unscored": {}, "ledger": {"dropped": {}}, "truncated": 0, "tokens_lost": 0}
    lost = {"unscored": {"no_completion": 1000, "inf": 2}, "ledger": {"dropped": {"same_id": 4, "no_id": 3}}}

    assert scored_summary(counts) == "3,000 of 3,000 rows have a score"
    assert scored_summary({**counts, **lost, "truncated": 1, "tokens_lost": 1500}) == (
        "1,998 of 3,000 rows have a score; without one: 2 inf, 1,000 no_completion; left out: 3 no_id, 4 same_id; "
        "truncated: 1 row, by 1,500 tokens"
    )


@pytest.mark.parametrize(("error_bar", "passed"), [("0.05", True), ("0.051", False)])
def test_scores_are_stable_up_to_a_twentieth_of_a_nat(error_bar: str, passed: bool) -> None:
    how_sure = {"rescored": 1200, "error_bar": error_bar, "largest": "0.125"}

    verdict = scores_are_stable(scores_artifact(Path("nowhere"), how_sure=how_sure))

    assert verdict.passed is passed
    assert verdict.because == (
        f"95 % of 1,200 rows that were scored again are within {error_bar} nats per token, all within 0.12"
    )


def test_stability_check_does_not_apply_without_rescored_rows() -> None:
    verdict = scores_are_stable(scores_artifact(Path("nowhere"), how_sure={"rescored": 0, "error_bar": None}))

    assert (verdict.passed, verdict.applies, verdict.because) == (True, False, "no row was scored again")


NO_ROW = (
    "no row is in a subset; the rules take percentiles (0 to 100): low from 0 to 0.2, high from 0.8 to 1; "
    "widen one, or relax its `where`"
)


@pytest.mark.parametrize(("high", "passed", "because"), [(1200, True, "low 0, high 1,200"), (0, False, NO_ROW)])
def test_a_subset_has_rows(high: int, passed: bool, because: str) -> None:
    rows = {"low": 0, "high": high}
    recipe = {"rules": {"low": {"percentile": ["0", "0.2"]}, "high": {"percentile": ["0.8", "1"]}}}
    identity = Identity(StageVersion("training_subsets", 2), recipe, [], None, {}, {"subsets": rows}, [])

    verdict = subsets_have_rows(Artifact(Path("nowhere"), Manifest("nemotron/training_subsets", "a", identity, [], {})))

    assert (verdict.passed, verdict.because) == (passed, because)
