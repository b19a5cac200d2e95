"""Estimates: a likely number between two bounds, and where it comes from."""

from hypothesis import given
from hypothesis import strategies as st

from pipeline_assets.corpus.planning.estimate import Estimate, exactly, total

bounds = st.lists(st.floats(0.001, 1e9), min_size=3, max_size=3).map(sorted)


@given(bounds, bounds)
def test_whatever_is_done_to_bounds_they_stay_in_order(first: list[float], second: list[float]) -> None:
    one, other = Estimate(*first, "one"), Estimate(*second, "other")

    for result in (one.times(other), one.over(other), one.at_most(5.0), one.counted(), total([one, other], "both")):
        assert result.low <= result.likely <= result.high


def test_the_basis_of_a_product_is_that_of_its_factor_unless_told() -> None:
    documents, share = exactly(100, "footers"), Estimate(0.5, 0.8, 0.9, "earlier builds")

    assert documents.times(share) == Estimate(50, 80, 90, "earlier builds")
    assert documents.times(share, "both").basis == "both"


def test_a_quotient_is_least_by_the_greatest_divisor() -> None:
    assert exactly(100, "").over(Estimate(4, 5, 10, "bytes a token")) == Estimate(10, 20, 25, "bytes a token")


def test_only_equal_bounds_are_exact() -> None:
    assert exactly(3, "").is_exact
    assert not Estimate(2, 3, 3, "").is_exact


def test_it_comes_back_from_json() -> None:
    estimate = Estimate(1, 2.5, 3, "footers")

    assert Estimate.from_json(estimate.to_json()) == estimate


def test_the_sum_of_nothing_is_nothing() -> None:
    assert total([], "footers") == exactly(0, "footers")
