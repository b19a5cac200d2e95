"""Plots of counts as lines of block characters."""

from pipeline_assets.corpus.plots import sparkline


def test_heights_are_proportional_and_only_zero_is_lowest() -> None:
    assert sparkline([0, 1, 50, 100, 1_000]) == "▁▂▂▂█"
    assert sparkline([500, 1_000]) == "▅█"


def test_counts_that_are_all_zero_are_lowest() -> None:
    assert sparkline([0, 0, 0]) == "▁▁▁"
    assert sparkline([]) == ""
