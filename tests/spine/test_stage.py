"""Shards group consecutive pieces, and windows select rows of a shard."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refusal

from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.stage import WHOLE_SHARD, Window, group_by_size, number_shards

NAMES = ["a", "b", "c", "d", "e"]


@pytest.mark.parametrize(
    ("window", "first", "rows"),
    [
        (WHOLE_SHARD, 3, [(3, "a"), (4, "b"), (5, "c"), (6, "d"), (7, "e")]),
        (Window(4, poison_rows=frozenset({4})), 0, [(4, "e")]),  # yielded, so that the stage can reject it
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
def test_window_yields_its_rows_of_a_batch(window: Window, first: int, rows: list[tuple[int, str]]) -> None:
    assert list(window.enumerate_rows(NAMES, first)) == rows


@given(st.integers(0, 40), st.integers(0, 45), st.integers(1, 9))
def test_both_windows_of_a_shard_yield_each_row_once_for_any_batch_size(rows: int, cut: int, batch: int) -> None:
    shard = list(range(100, 100 + rows))

    window_rows = [
        pair
        for window in (Window(0, cut), Window(cut, None))
        for first in range(0, rows, batch)
        for pair in window.enumerate_rows(shard[first : first + batch], first)
    ]

    assert window_rows == list(enumerate(shard))


@given(st.lists(st.integers(0, 50)), st.integers(1, 100))
def test_groups_keep_the_order_and_reach_the_minimum_with_the_last_piece(sizes: list[int], minimum: int) -> None:
    pieces = list(enumerate(sizes))

    groups = list(group_by_size(pieces, lambda piece: piece[1], minimum))

    assert [piece for group in groups for piece in group] == pieces
    grouped = [[size for _, size in group] for group in groups]
    assert all(sum(group) >= minimum for group in grouped[:-1])
    assert all(group and sum(group[:-1]) < minimum for group in grouped)


def test_artifact_is_limited_to_shard_numbers_of_five_digits() -> None:
    shards = number_shards(range(100_000))

    assert (shards[0], shards[-1]) == (("00000", 0), ("99999", 99_999))
    assert sorted(shards) == shards
    assert refusal(lambda: number_shards(range(100_001)), UsageError) == (
        "an artifact is limited to 100,000 shards, got 100,001; increase the shard size, or split the source"
    )
