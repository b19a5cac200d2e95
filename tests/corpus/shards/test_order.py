"""The order of a mixture: the corpus at each position, and its row."""

from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pipeline_assets.corpus.packing.hashed_order import hashed_order
from pipeline_assets.corpus.shards.mixture_order import mixture_order, weight_fractions
from pipeline_assets.corpus.weights import apportion

PARTS = st.lists(st.integers(1, 60) | st.integers(1, 10**12), min_size=1, max_size=12)


def build_corpora(sizes: list[int]) -> dict[str, range]:
    return {f"c{number:02d}": range(size) for number, size in enumerate(sizes)}


def build_weights(parts: list[int]) -> dict[str, Fraction]:
    return {f"c{number:02d}": Fraction(part, sum(parts)) for number, part in enumerate(parts)}


def plain_order(weights: list[Fraction], places: int) -> list[int]:
    """Order by exact fractions: of the eligible corpora, the one due first is next."""
    used, order = [0] * len(weights), []
    for place in range(1, places + 1):
        eligible = [number for number, weight in enumerate(weights) if weight * place > used[number]]
        due = {number: -((-used[number] - 1) // weights[number]) for number in eligible}
        order.append(min(eligible, key=lambda number: (due[number], number)))
        used[order[-1]] += 1
    return order


# By the largest deficit, the third of the parts in the example would lag by 1.2 rows.
@example([50, 1, 1, 50, 1, 5, 3, 3, 2, 3, 50], 169)
@given(PARTS, st.integers(1, 100))
def test_order_is_that_of_exact_fractions_and_within_a_row_of_the_weights(parts: list[int], places: int) -> None:
    weights = build_weights(parts)

    order = mixture_order(build_corpora([10**3] * len(parts)), weights, 1, places).corpus_numbers.tolist()

    assert order == plain_order([*weights.values()], places)
    used = [0] * len(parts)
    for place, corpus in enumerate(order, 1):
        used[corpus] += 1
        assert all(abs(count - weight * place) < 1 for count, weight in zip(used, weights.values(), strict=True)), place


@given(st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20)), min_size=1, max_size=6), st.integers(0, 99))
def test_the_order_ends_before_a_corpus_would_repeat_a_row(corpora: list[tuple[int, int]], seed: int) -> None:
    sizes, parts = [list(column) for column in zip(*corpora, strict=True)]
    weights = build_weights(parts)

    order = mixture_order(build_corpora(sizes), weights, seed, None)
    longer = mixture_order(build_corpora(sizes), weights, seed, len(order) + 1)

    row_counts = [order.corpus_numbers.tolist().count(number) for number in range(len(sizes))]
    assert all(count <= size for count, size in zip(row_counts, sizes, strict=True))
    assert row_counts[longer.corpus_numbers[-1]] == sizes[longer.corpus_numbers[-1]]
    assert longer.corpus_numbers[:-1].tolist() == order.corpus_numbers.tolist()
    assert longer.row_numbers[:-1].tolist() == order.row_numbers.tolist()


def test_rows_of_a_corpus_are_in_the_hashed_order_of_each_epoch() -> None:
    corpora = {"a": range(5), "b": range(10, 13)}

    order = mixture_order(corpora, {"a": Fraction(1, 2), "b": Fraction(1, 2)}, 7, 20)

    for number, name in enumerate(corpora):
        rows = corpora[name]
        epochs = [hashed_order(len(rows), 7, "mixture", name, epoch).tolist() for epoch in range(4)]
        expected = [rows.start + row for epoch in epochs for row in epoch]
        assert order.row_numbers[order.corpus_numbers == number].tolist() == expected[:10]


def test_weights_are_read_as_they_are_written() -> None:
    assert weight_fractions({"a": 0.1, "b": "0.2", "c": 0.7}) == {
        "a": Fraction(1, 10),
        "b": Fraction(1, 5),
        "c": Fraction(7, 10),
    }
    assert weight_fractions({"a": "1/3", "b": "2/3"}) == {"a": Fraction(1, 3), "b": Fraction(2, 3)}


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"a": 0.5, "b": 0.4}, "weights must sum to 1, got 9/10"),
        ({"a": 1, "b": 0}, "weight of b must be above 0, got 0; remove the corpus to skip it"),
        ({"a": 1.5, "b": -0.5}, "weight of b must be above 0, got -0.5"),
        ({"a": "x"}, r"weight of a must be a number, such as 0.25 or '1/3', got 'x'"),
        ({"a": 0.5, "b": "1/0"}, "weight of b must be a number, .* got '1/0'"),
        ({"a": 0.5, "b": float("nan")}, "weight of b must be a number, .* got nan"),
    ],
)
def test_invalid_weights_are_refused(weights: dict[str, float | str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        weight_fractions(weights)


def test_weights_too_fine_for_whole_numbers_are_refused() -> None:
    fine = {"a": Fraction(1, 3**40), "b": 1 - Fraction(1, 3**40)}

    with pytest.raises(ValueError, match="round them"):
        mixture_order({"a": range(2), "b": range(2)}, fine, 1, None)


@given(PARTS, st.integers(0, 1000))
def test_whole_shares_are_rounded_to_their_total(parts: list[int], total: int) -> None:
    weights = [*build_weights(parts).values()]

    shares = apportion(weights, total)

    assert sum(shares) == total
    assert all(abs(share - weight * total) < 1 for share, weight in zip(shares, weights, strict=True))
