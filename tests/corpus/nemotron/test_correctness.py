"""Correctness of problems, from the evaluations of Math-v2."""

from fractions import Fraction

import hypothesis
import pytest
from hypothesis import strategies as st

from pipeline_assets.corpus.nemotron.row_columns import EVALUATION_CONDITIONS, read_correctness

UNKNOWN = read_correctness({})


def evaluations(**attempts: tuple[int, int]) -> dict[str, object]:
    """Build evaluations; `high_no_tool=(7, 8)` stands for 7 of 8."""
    return {
        f"reason_{condition}": {"count": count, "pass": passed, "accuracy": round(passed / count, 4) if count else 0.0}
        for condition, (passed, count) in attempts.items()
    }


MAX = 2**31 - 1


@pytest.mark.parametrize(
    ("metadata", "columns"),
    [
        (
            evaluations(low_with_tool=(6, 7), high_no_tool=(5, 7), high_with_tool=(1, 8)),
            (0.8571, 0.7143, 7, 6, "low_with_tool", "medium"),
        ),
        (evaluations(high_with_tool=(0, 0), low_no_tool=(0, 8)), (0.0, None, 8, 0, "low_no_tool", "unsolved")),
        (evaluations(high_with_tool=(0, 0)), (None,) * 6),
        ({"reason_low_no_tool": {"count": "8", "pass": "7"}}, (0.875, None, 8, 7, "low_no_tool", "easy")),
        ({"reason_low_no_tool": {"count": MAX, "pass": MAX}}, (1.0, None, MAX, MAX, "low_no_tool", "easy")),
        ({"reason_high_no_tool": {"accuracy": "0.71428"}}, (0.7143, 0.7143, None, None, "high_no_tool", None)),
    ],
)
def test_best_condition_sets_all_but_the_solved_bin(metadata: dict[str, object], columns: tuple[object, ...]) -> None:
    assert (*read_correctness(metadata).values(),) == columns


def test_first_of_equal_conditions_is_the_best() -> None:
    for place, condition in enumerate(EVALUATION_CONDITIONS):
        result = read_correctness(evaluations(**dict.fromkeys(reversed(EVALUATION_CONDITIONS[place:]), (4, 8))))

        assert result["meta_correctness_condition"] == condition


@pytest.mark.parametrize(
    "condition",
    [
        *({"count": 8, "pass": passed} for passed in (9, -1, None, True)),
        {"count": 2**31, "pass": 2**31},
        {"count": "eight", "pass": 1},
        {"count": 0, "pass": None, "accuracy": 0.5},
        *({"accuracy": accuracy} for accuracy in ("nan", 1.5, 10**400)),
        *([8, 7], None),
    ],
)
def test_invalid_condition_is_ignored(condition: object) -> None:
    assert read_correctness({"reason_high_no_tool": condition}) == UNKNOWN


@pytest.mark.parametrize(
    ("passed", "solved"),
    [(0, "unsolved"), (1, "hard"), (4, "hard"), (5, "medium"), (12, "medium"), (13, "easy"), (16, "easy")],
)
def test_solved_bin_counts_all_attempts(passed: int, solved: str) -> None:
    attempts = {"high_with_tool": (min(passed, 8), 8), "low_no_tool": (max(passed - 8, 0), 8)}

    assert read_correctness(evaluations(**attempts))["meta_solved_bin"] == solved


@hypothesis.given(
    st.dictionaries(
        st.sampled_from(EVALUATION_CONDITIONS),
        st.integers(0, 8).flatmap(lambda count: st.tuples(st.integers(0, count), st.just(count))),
    )
)
def test_correctness_is_the_maximum_of_the_rounded_fractions(attempts: dict[str, tuple[int, int]]) -> None:
    result = read_correctness(evaluations(**attempts))

    rounded = {name: float(round(Fraction(*counts), 4)) for name, counts in attempts.items() if counts[1]}
    assert result["meta_correctness"] == max(rounded.values(), default=None)
    assert result["meta_correctness_high"] == max(
        (value for name, value in rounded.items() if "high" in name), default=None
    )
    if result["meta_correctness_condition"] is not None:
        assert attempts[result["meta_correctness_condition"]] == (result["meta_correct_count"], result["meta_pass_k"])
        assert rounded[result["meta_correctness_condition"]] == result["meta_correctness"]
