"""Shards: runs of consecutive pieces, closed by the piece that fills them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_assets.corpus.spine.worker import grouped_by_size

sizes_lists = st.lists(st.integers(0, 50))
limits = st.integers(1, 100)


@pytest.mark.parametrize(
    ("sizes", "groups"),
    [
        ([], []),
        ([4], [[4]]),
        ([10], [[10]]),
        ([25], [[25]]),
        ([4, 6], [[4, 6]]),
        ([4, 6, 1], [[4, 6], [1]]),
        ([9, 9, 9], [[9, 9], [9]]),
        ([0, 0, 10, 0], [[0, 0, 10], [0]]),
    ],
)
def test_a_group_is_closed_by_the_piece_that_brings_it_to_the_size(sizes: list[int], groups: list[list[int]]) -> None:
    assert list(grouped_by_size(sizes, int, at_least=10)) == groups


@given(sizes_lists, limits)
def test_no_piece_is_lost_repeated_or_moved(sizes: list[int], at_least: int) -> None:
    pieces = list(enumerate(sizes))

    groups = list(grouped_by_size(pieces, lambda piece: piece[1], at_least))

    assert [piece for group in groups for piece in group] == pieces


@given(sizes_lists, limits)
def test_every_group_but_the_last_is_full_and_was_not_before_its_last_piece(sizes: list[int], at_least: int) -> None:
    groups = list(grouped_by_size(sizes, int, at_least))

    assert all(sum(group) >= at_least for group in groups[:-1])
    assert all(sum(group[:-1]) < at_least for group in groups)
    assert all(groups)


@given(sizes_lists, sizes_lists, limits)
def test_pieces_added_at_the_end_leave_full_groups_as_they_were(head: list[int], tail: list[int], limit: int) -> None:
    before = list(grouped_by_size(head, int, limit))

    after = list(grouped_by_size(head + tail, int, limit))

    full = [group for group in before if sum(group) >= limit]
    assert after[: len(full)] == full
