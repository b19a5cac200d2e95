"""Seeded orders of numbers by SplitMix64, equal on every machine."""

from hypothesis import given
from hypothesis import strategies as st
from plain_packing import PlainCorpus, split_mix

from pipeline_assets.corpus.packing.hashed_order import hashed_order


@given(st.integers(0, 300), st.integers(0, 2**70), st.text(max_size=5))
def test_numbers_are_ordered_by_the_upper_halves_of_their_hashes(count: int, seed: int, subject: str) -> None:
    order = hashed_order(count, seed, "epoch", subject).tolist()

    assert order == PlainCorpus({}, {}, {}, seed).order(count, "epoch", subject)
    assert sorted(order) == list(range(count))


def test_split_mix_equals_its_reference_implementation() -> None:
    """First outputs of Vigna's splitmix64.c for the seed 1234567."""
    assert [split_mix(1234567, number) for number in range(3)] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]
