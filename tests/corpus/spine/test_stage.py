"""Windows: which rows of a shard a stage reads."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_assets.corpus.spine.worker import WHOLE, Window

NAMES = ["a", "b", "c", "d", "e"]


def test_the_whole_window_gives_every_row_with_its_number() -> None:
    assert list(WHOLE.of(["x", "y"], first=10)) == [(10, "x"), (11, "y")]


@pytest.mark.parametrize(
    ("window", "first", "rows"),
    [
        (Window(1, 3), 0, [(1, "b"), (2, "c")]),
        (Window(11, 13), 10, [(11, "b"), (12, "c")]),
        (Window(0, 12), 10, [(10, "a"), (11, "b")]),
        (Window(13, None), 10, [(13, "d"), (14, "e")]),
        (Window(13, 99), 10, [(13, "d"), (14, "e")]),
        (Window(0, 10), 10, []),
        (Window(15, None), 10, []),
        (Window(2, 2), 0, []),
        (Window(4, 1), 0, []),
    ],
)
def test_a_window_gives_its_part_of_the_rows_at_hand(window: Window, first: int, rows: list[tuple[int, str]]) -> None:
    assert list(window.of(NAMES, first)) == rows


def test_a_fatal_row_is_given_too_so_that_the_stage_can_reject_it() -> None:
    window = Window(fatal=frozenset({1}))

    assert list(window.of(["x", "y"], first=0)) == [(0, "x"), (1, "y")]


@given(st.integers(0, 40), st.integers(0, 45), st.integers(1, 9))
def test_the_two_halves_of_a_shard_give_each_row_once_however_it_is_read(rows: int, cut: int, batch: int) -> None:
    shard = list(range(100, 100 + rows))

    given_rows = [
        pair
        for window in (Window(0, cut), Window(cut, None))
        for first in range(0, rows, batch)
        for pair in window.of(shard[first : first + batch], first)
    ]

    assert given_rows == list(enumerate(shard))
