"""Reservoirs draw every row by its weight, reproducibly for a seed.

Chi-square tests compare whole sets of rows, not single rows: a sampler that draws each row often enough may still
never draw two neighbours together. Seeds are fixed, so a test that passes always passes.
"""

import itertools
import math
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_assets.corpus.reservoir import Algorithm, Reservoir, SplitMix64, new_reservoir

RUNS = 20_000
ALGORITHMS: tuple[Algorithm, ...] = ("classic", "es_weighted")


def draw_rows(algorithm: Algorithm, k: int, seed: int, weights: Sequence[float]) -> list[int]:
    """Return the rows of a weighted stream that remain in the reservoir."""
    reservoir: Reservoir[int] = new_reservoir(algorithm, k, seed)
    for row, weight in enumerate(weights):
        if reservoir.advance(weight):
            reservoir.insert(row, weight)
    return reservoir.items


def draw_probability(chosen: frozenset[int], weights: Sequence[float]) -> float:
    """Return the probability of drawing these rows, each by its remaining share."""
    total = 0.0
    for order in itertools.permutations(chosen):
        chance, remaining = 1.0, sum(weights)
        for row in order:
            chance *= weights[row] / remaining
            remaining -= weights[row]
        total += chance
    return total


def chi_square(seen: Counter[frozenset[int]], k: int, weights: Sequence[float]) -> float:
    """Return chi-square in standard deviations, by Wilson and Hilferty's cube root."""
    sets = [frozenset(rows) for rows in itertools.combinations(range(len(weights)), k)]
    expected = {rows: RUNS * draw_probability(rows, weights) for rows in sets}
    assert sum(expected.values()) == pytest.approx(RUNS)
    assert seen.keys() <= expected.keys()
    total, freedom = sum((seen[rows] - count) ** 2 / count for rows, count in expected.items()), len(sets) - 1
    spread = 2 / (9 * freedom)
    return ((total / freedom) ** (1 / 3) - (1 - spread)) / math.sqrt(spread)


SLOW = [pytest.param(name, marks=() if name == "classic" else pytest.mark.slow) for name in ALGORITHMS]


@pytest.mark.parametrize("algorithm", SLOW)
def test_every_set_of_equal_rows_is_drawn_equally_often(algorithm: Algorithm) -> None:
    seen = Counter(frozenset(draw_rows(algorithm, 2, seed, [1.0] * 6)) for seed in range(RUNS))

    assert len(seen) == 15
    assert abs(chi_square(seen, 2, [1.0] * 6)) < 3


@pytest.mark.slow
def test_every_set_of_weighted_rows_is_drawn_by_its_weights() -> None:
    weights = [1.0, 5.0, 0.5, 2.0, 3.0]

    seen = Counter(frozenset(draw_rows("es_weighted", 2, seed, weights)) for seed in range(RUNS))

    assert abs(chi_square(seen, 2, weights)) < 3
    assert abs(chi_square(seen, 2, [1.0] * 5)) > 50  # wrong weights fail


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_late_rows_of_a_long_stream_are_drawn_as_often_as_early_ones(algorithm: Algorithm) -> None:
    rows, k, runs = 2000, 10, 200

    tenths = Counter(row * 10 // rows for seed in range(runs) for row in draw_rows(algorithm, k, seed, [1.0] * rows))

    assert sum((tenths[tenth] - 200) ** 2 / 200 for tenth in range(10)) < 27.9  # 9 degrees of freedom, p = 0.001


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@given(st.integers(0, 2**32), st.sets(st.integers(0, 40)))
def test_skipped_rows_are_never_in_the_reservoir(algorithm: Algorithm, seed: int, never: set[int]) -> None:
    reservoir: Reservoir[int] = new_reservoir(algorithm, 3, seed)
    for row in range(41):
        if reservoir.advance(1.0):
            if row in never:
                reservoir.skip()
            else:
                reservoir.insert(row, 1.0)

    assert set(reservoir.items).isdisjoint(never)
    assert len(reservoir.items) == min(3, 41 - len(never))


@pytest.mark.parametrize("skipped", [1, 8])
def test_a_row_after_skipped_rows_is_drawn_as_often_as_without_them(skipped: int) -> None:
    """Eight duplicates of the first row must not make the last row almost certain."""
    draws = 0
    for seed in range(1000):
        reservoir: Reservoir[int] = new_reservoir("es_weighted", 1, seed)
        for row in [0] * (1 + skipped) + [1]:
            if reservoir.advance(1.0):
                if row in reservoir.items:
                    reservoir.skip()
                else:
                    reservoir.insert(row, 1.0)
        draws += reservoir.items == [1]

    assert abs(draws - 500) < 50  # more than three standard deviations


def test_draws_equal_the_reference_and_stored_rows() -> None:
    """SplitMix64 from state 1234567 as in its reference, then each algorithm."""
    generator = SplitMix64(1234567)
    assert [generator.draw_bits() for _ in range(3)] == [6457827717110365317, 3203168211198807973, 9817491932198370423]

    assert {algorithm: sorted(draw_rows(algorithm, 5, 42, [1.0] * 1000)) for algorithm in ALGORITHMS} == {
        "classic": [258, 619, 786, 912, 964],
        "es_weighted": [306, 458, 487, 608, 842],
    }
