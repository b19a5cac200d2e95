"""Rows that balanced strata select in turn."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_assets.corpus.scoring.row_choice import select_candidates
from pipeline_assets.corpus.scoring.subset_recipe import SubsetRule

BALANCED = SubsetRule(balance=True)


@pytest.mark.parametrize(
    ("strata", "selected"),
    [
        ([0, 0, 0, 1], {0: 1, 1: 1}),
        ([0, 2, 2, 2], {0: 1, 2: 1}),  # no candidate has the number 1
        ([1, 1, 1], {1: 3}),
        ([], {}),
    ],
)
def test_without_a_limit_all_strata_give_equally_many_rows(strata: list[int], selected: dict[int, int]) -> None:
    numbers = np.array(strata, np.int32)

    mask = select_candidates(BALANCED, np.arange(len(numbers), dtype=np.uint64), numbers)

    assert Counter(numbers[mask].tolist()) == selected


@given(st.lists(st.integers(0, 4), min_size=1, max_size=40), st.integers(1, 40))
def test_a_larger_limit_adds_one_row_and_keeps_strata_balanced(strata: list[int], max_rows: int) -> None:
    numbers = np.array(strata, np.int32)
    ranks = np.random.default_rng(len(strata)).permutation(len(strata)).astype(np.uint64)

    fewer, more = (
        select_candidates(SubsetRule(balance=True, max_rows=rows), ranks, numbers) for rows in (max_rows, max_rows + 1)
    )

    assert fewer.sum() == min(max_rows, len(strata)) and not (fewer & ~more).any()
    rest = {stratum: ranks[(numbers == stratum) & ~fewer] for stratum in set(strata)}
    used = {stratum: ranks[(numbers == stratum) & fewer] for stratum in set(strata)}
    assert all(len(rest[s]) == 0 or len(used[s]) == 0 or rest[s].min() > used[s].max() for s in rest)
    largest = max(map(len, used.values()))
    assert all(len(rest[stratum]) == 0 or len(used[stratum]) >= largest - 1 for stratum in used)
