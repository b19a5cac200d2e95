"""How likely bands propose a pair."""

import pytest

from pipeline_assets.corpus.dedup.recipe import Banding, bandings, recommended


def test_a_pair_is_proposed_with_the_probability_that_one_band_is_all_alike() -> None:
    assert Banding(14, 8).proposes(0.8) == pytest.approx(1 - (1 - 0.8**8) ** 14)
    assert Banding(14, 8).proposes(1) == 1
    assert Banding(14, 8).proposes(0) == 0


def test_a_signature_is_cut_with_none_of_it_left_over() -> None:
    assert list(bandings(12)) == [
        Banding(12, 1),
        Banding(6, 2),
        Banding(4, 3),
        Banding(3, 4),
        Banding(2, 6),
        Banding(1, 12),
    ]


def test_the_most_rows_that_still_find_enough_are_recommended() -> None:
    assert recommended(112, 0.8, 0.95) == Banding(16, 7)
    assert recommended(112, 0.8, 0.999) == Banding(28, 4)
    assert recommended(112, 0.01, 0.95) == Banding(112, 1)
