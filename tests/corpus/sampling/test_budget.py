"""The longest prefix of documents that fits: the first that doesn't fit ends it, nothing is skipped."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_assets.corpus.sampling.budget import documents_that_fit


def slow_documents_that_fit(lengths: list[int], budget: int) -> int:
    tokens = 0
    for number, length in enumerate(lengths):
        tokens += length
        if tokens > budget:
            return number
    return len(lengths)


@pytest.mark.parametrize(
    ("lengths", "budget", "documents"),
    [
        ([], 0, 0),
        ([], 10, 0),
        ([3, 4, 3], 10, 3),  # exactly full
        ([3, 4, 4], 10, 2),  # one token over
        ([3, 8, 1], 10, 1),  # the third would fit, but comes after one that doesn't
        ([11, 1], 10, 0),
        ([1], 0, 0),
        ([0, 0, 1], 0, 2),
        ([3, 4, 3], 10**15, 3),
    ],
)
def test_the_first_document_that_does_not_fit_ends_it(lengths: list[int], budget: int, documents: int) -> None:
    assert documents_that_fit(np.array(lengths, np.int32), budget) == documents


def test_sums_pass_the_range_of_32_bits() -> None:
    lengths = np.full(3, 2**31 - 1, np.int32)

    assert documents_that_fit(lengths, 2 * (2**31 - 1)) == 2


@given(lengths=st.lists(st.integers(0, 20), max_size=30), budget=st.integers(0, 200))
def test_it_is_what_a_loop_finds(lengths: list[int], budget: int) -> None:
    assert documents_that_fit(np.array(lengths, np.int32), budget) == slow_documents_that_fit(lengths, budget)
