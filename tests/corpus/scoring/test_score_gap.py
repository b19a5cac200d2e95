"""The gap between two models in bits per byte, and its confidence interval."""

import math
import random
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from score_files import POOL, Row, drawn_rows, scored_row, write_scores

from pipeline_assets.commands.terminal import align
from pipeline_assets.corpus.scoring.score_gap import Comparison, ScoreGap, compare_scores

LN_2 = 0.6931471805599453


def rescore_rows(rows: list[Row], seed: int, better_by: float) -> list[Row]:
    """Return the same rows as another model with another tokenizer scores them."""
    dice = random.Random(seed)

    def rescore(row: Row) -> Row:
        if row["nll_mean"] is None:
            return row
        nats = row["nll_sum"] * dice.uniform(0.8, 1.2) - better_by * row["completion_bytes"] * LN_2
        count = row["completion_token_count"] + 1
        return {**row, "nll_sum": nats, "nll_mean": nats / count, "completion_token_count": count}

    return [rescore(row) for row in rows]


def compare(root: Path, first: dict[str, list[Row]], second: dict[str, list[Row]]) -> ScoreGap:
    sides = [
        [write_scores(root / side / name, name, rows) for name, rows in splits.items()]
        for side, splits in (("first", first), ("second", second))
    ]
    return compare_scores(*sides)


def naive(pairs: list[tuple[Row, Row]]) -> dict[str, object]:
    size = sum(row["completion_bytes"] for row, _ in pairs)
    first, second = (math.fsum(pair[side]["nll_sum"] for pair in pairs) / LN_2 / size for side in (0, 1))
    better = sum(other["nll_sum"] < row["nll_sum"] for row, other in pairs) / len(pairs)
    figures = {"first": first, "second": second, "gap": second - first, "second_better_share": better}
    return {"rows": len(pairs), "bytes": size} | {
        name: pytest.approx(figure, abs=1e-12) for name, figure in figures.items()
    }


def estimates(gap: Comparison) -> dict[str, object]:
    return {name: value for name, value in asdict(gap).items() if name not in ("low", "high")}


def test_figures_equal_a_naive_computation(tmp_path: Path) -> None:
    first = {"maths/high": drawn_rows(1, 80), "maths/low": drawn_rows(2, 60)}
    second = {name: rescore_rows(rows, 7, 0.1) for name, rows in first.items()}

    gaps = compare(tmp_path, first, second)

    pairs = {
        name: [(row, other) for row, other in zip(rows, second[name], strict=True) if row["nll_mean"] is not None]
        for name, rows in first.items()
    }
    all_pairs = [pair for rows in pairs.values() for pair in rows]
    assert estimates(gaps.total) == naive(all_pairs)
    assert {name: estimates(gap) for name, gap in gaps.splits.items()} == {
        name: naive(rows) for name, rows in pairs.items()
    }
    assert list(gaps.domains) == ["chat_if", "math", "proof", "unknown"]
    for domain, gap in gaps.domains.items():
        assert estimates(gap) == naive([pair for pair in all_pairs if (pair[0]["domain"] or "unknown") == domain])


def test_rows_are_joined_by_id_and_the_rest_is_counted(tmp_path: Path) -> None:
    first = [scored_row(0, 1.0), scored_row(1, 1.0), scored_row(2, 1.0, size=20), scored_row(3, None)]
    second = [scored_row(3, 2.0), scored_row(2, 2.0, size=21), scored_row(4, 2.0), scored_row(0, 2.0)]

    result = compare(tmp_path, {"maths/low": first, "maths/a": first}, {"maths/low": second, "maths/b": second})

    assert result.excluded == {
        "maths/low": {"only_first": 1, "only_second": 2, "other_bytes": 1},
        "maths/a": {"only_first": 3, "only_second": 0, "other_bytes": 0},
        "maths/b": {"only_first": 0, "only_second": 4, "other_bytes": 0},
    }
    assert estimates(result.splits["maths/low"]) == naive([(first[0], second[3])])
    assert result.splits["maths/a"] == Comparison(0, 0)
    assert result.total == result.splits["maths/low"]


def test_equal_differences_give_an_interval_of_zero_width(tmp_path: Path) -> None:
    rows = [scored_row(number, 1.0) for number in range(50)]
    second = [scored_row(number, 2.0) for number in range(50)]

    gap = compare(tmp_path, {"maths/low": rows}, {"maths/low": second}).total

    assert gap.gap is not None
    assert gap.low == gap.high == pytest.approx(gap.gap, abs=1e-6)
    assert gap.second_better_share == 0


@pytest.mark.slow
def test_interval_matches_the_standard_error_of_a_ratio(tmp_path: Path) -> None:
    """The gap is a ratio of sums; its standard error is in Cochran 1977, chapter 6."""
    dice, rows = random.Random(5), 3000
    sizes = [dice.choice([10, 20, 80]) for _ in range(rows)]
    first = [scored_row(number, 1.0, size=size) for number, size in enumerate(sizes)]
    second = [scored_row(number, 1.0 + dice.gauss(0.02, 0.3), size=size) for number, size in enumerate(sizes)]

    gap = compare(tmp_path, {"maths/low": first}, {"maths/low": second}).total

    changes = [(after["nll_sum"] - before["nll_sum"]) / LN_2 for before, after in zip(first, second, strict=True)]
    ratio, mean_size = sum(changes) / sum(sizes), sum(sizes) / rows
    off = [change - ratio * size for change, size in zip(changes, sizes, strict=True)]
    error = math.sqrt(sum(before * before for before in off) / (rows - 1) / rows) / mean_size
    assert (gap.low, gap.high) == pytest.approx((ratio - 1.96 * error, ratio + 1.96 * error), abs=1e-6)


@settings(max_examples=20)
@given(st.lists(st.tuples(st.one_of(st.none(), st.floats(0, 9)), st.floats(0, 9), st.integers(0, 50)), max_size=12))
def test_swapping_the_models_negates_the_gap(
    tmp_path_factory: pytest.TempPathFactory, values: list[tuple[float | None, float, int]]
) -> None:
    root = tmp_path_factory.mktemp("opposite")
    first = [scored_row(number, nll, size=size) for number, (nll, _, size) in enumerate(values)]
    second = [scored_row(number, other_nll, size=size) for number, (_, other_nll, size) in enumerate(values)]

    gap = compare(root / "there", {"a/b": first}, {"a/b": second}).total
    reverse = compare(root / "back", {"a/b": second}, {"a/b": first}).total

    assert (gap.rows, gap.bytes, gap.first, gap.second) == (reverse.rows, reverse.bytes, reverse.second, reverse.first)
    if gap.low is not None and gap.high is not None:
        assert (gap.low, gap.high) == pytest.approx((-(reverse.high or 0), -(reverse.low or 0)), abs=1e-6)


def test_rows_of_pools_without_domains_have_domain_unknown(tmp_path: Path) -> None:
    split = write_scores(tmp_path / "s", "maths/low", [scored_row(0, 1.0)], pool=POOL.remove(1))

    assert list(compare_scores([split], [split]).domains) == ["unknown"]


def test_gap_is_shown_as_aligned_lines(tmp_path: Path) -> None:
    first = [scored_row(0, 2.0), scored_row(1, 3.0, domain="proof"), scored_row(2, 1.0)]
    second = [scored_row(0, 1.0), scored_row(1, 3.0)]

    result = compare(tmp_path, {"maths/low": first, "maths/none": []}, {"maths/low": second, "maths/none": []})

    assert [*align(result.table_rows(), range(1, 8)), *result.warnings()] == [
        "              rows  bytes   first  second      gap       95 % interval  second better",
        "all              2     40  0.7213  0.5771  -0.1443  -0.4270 to +0.1385         50.0 %",
        "maths/low        2     40  0.7213  0.5771  -0.1443  -0.4270 to +0.1385         50.0 %",
        "maths/none       0      0       -       -        -                   -              -",
        "domain math      1     20  0.5771  0.2885  -0.2885                   -        100.0 %",
        "domain proof     1     20  0.8656  0.8656  +0.0000                   -          0.0 %",
        "maths/low: left out 1 only first",
    ]
