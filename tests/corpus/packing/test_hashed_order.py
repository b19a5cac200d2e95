"""Seeded orders: every number once, by SplitMix64, the same on every machine."""

from hypothesis import given
from hypothesis import strategies as st
from plain_packing import PlainCorpus, split_mix

from pipeline_assets.corpus.packing.hashed_order import hashed_order


@given(st.integers(0, 300), st.integers(0, 2**70), st.text(max_size=5))
def test_numbers_are_ordered_by_the_upper_halves_of_their_hashes(things: int, seed: int, subject: str) -> None:
    order = hashed_order(things, seed, "epoch", subject).tolist()

    assert order == PlainCorpus({}, {}, {}, seed).order(things, "epoch", subject)
    assert sorted(order) == list(range(things))


def test_the_hash_is_that_of_others() -> None:
    """The first outputs of SplitMix64 for the seed 1234567, as Vigna's splitmix64.c gives them."""
    assert [split_mix(1234567, number) for number in range(3)] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]
