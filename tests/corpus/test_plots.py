"""Plots of counts as lines of block characters."""

from pipeline_assets.corpus.plots import text_bars


def test_heights_are_proportional_and_only_zero_is_lowest() -> None:
    assert text_bars([0, 1, 50, 100, 1_000]) == "▁▂▂▂█"
    assert text_bars([500, 1_000]) == "▅█"


def test_counts_that_are_all_zero_are_lowest() -> None:
    assert text_bars([0, 0, 0]) == "▁▁▁"
    assert text_bars([]) == ""
