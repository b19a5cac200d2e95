"""Seeded orders of numbered things, by a counter-based hash: what comes when depends on its number alone.

The hash of number i is the i-th output of SplitMix64 (Steele, Lea, Flood: "Fast Splittable Pseudorandom Number
Generators", OOPSLA 2014), started at the first 8 bytes of the sha256 of the seed and what is ordered. Things are
ordered by the upper 32 bits of their hashes, then by their numbers.
"""

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import compiled, inner
from pipeline_assets.corpus.spine.hashes import rank

MAX_THINGS = 2**32
_GAMMA, _MIX_1, _MIX_2 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_30, _27, _31 = np.uint64(30), np.uint64(27), np.uint64(31)
_UPPER = np.uint64(0xFFFFFFFF00000000)


def hashed_order(things: int, seed: int, *of: object) -> NDArray[np.uint32]:
    """The numbers 0 … things - 1 in the order that seed and subject give them; 8 bytes a thing while it is made."""
    start = int.from_bytes(rank(str(seed), *of)[:8], "big")
    keys = np.empty(things, np.uint64)
    _hash(np.uint64(start), keys)
    keys.sort()
    numbers = keys.view(np.uint32)
    _to_the_front(keys, numbers)
    del numbers
    keys.resize((things + 1) // 2, refcheck=False)  # gives the rest back, and copies nothing
    return keys.view(np.uint32)[:things]


@inner
def _split_mix(state: np.uint64) -> np.uint64:
    state = (state ^ (state >> _30)) * _MIX_1
    state = (state ^ (state >> _27)) * _MIX_2
    return state ^ (state >> _31)


@compiled
def _hash(start: np.uint64, keys: NDArray[np.uint64]) -> None:
    for number in range(len(keys)):
        state = start + np.uint64(number + 1) * _GAMMA
        keys[number] = (_split_mix(state) & _UPPER) | np.uint64(number)


@compiled
def _to_the_front(keys: NDArray[np.uint64], numbers: NDArray[np.uint32]) -> None:
    """The lower halves of keys to the beginning of the same memory."""
    for place in range(len(keys)):
        numbers[place] = np.uint32(keys[place])
