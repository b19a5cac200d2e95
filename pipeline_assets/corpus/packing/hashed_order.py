"""Seeded orders from a counter-based hash.

The hash of number i is output i of SplitMix64 (Steele, Lea, Flood: "Fast Splittable Pseudorandom Number Generators",
OOPSLA 2014). The start state consists of the first 8 bytes of a sha256 of seed and subject. Numbers are ordered by the
upper 32 bits of their hashes; if these are equal, the lower number is first.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import compiled, compiled_inner
from pipeline_assets.spine.files import seeded_sort_key

MAX_ITEMS = 2**32
_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_UPPER_MASK = np.uint64(0xFFFFFFFF00000000)  # mask of the upper 32 bits
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_CHUNK_VALUES = 1 << 16
_30, _27, _31 = np.uint64(30), np.uint64(27), np.uint64(31)


@compiled_inner
def split_mix(state: np.uint64) -> np.uint64:
    """Mix 64 bits with SplitMix64's finalizer, which is invertible."""
    # An XOR with a right shift keeps the top bits, which restore the rest; an odd factor has an inverse modulo 2**64.
    state = (state ^ (state >> _30)) * _MIX_1
    state = (state ^ (state >> _27)) * _MIX_2
    return state ^ (state >> _31)


def hashed_order(count: int, seed: int, *subject: object) -> NDArray[np.uint32]:
    """Return the numbers 0 to count - 1 in a seeded order; `count` <= `MAX_ITEMS`.

    `subject`, such as the name of a source and an epoch, selects an independent order. Memory: 8 bytes per number.
    """
    start = int.from_bytes(seeded_sort_key(str(seed), *subject)[:8], "big")
    keys = np.empty(count, np.uint64)
    _hash_numbers(np.uint64(start), keys)
    keys.sort()
    return lower_halves(keys)


@compiled
def _hash_numbers(first_state: np.uint64, keys: NDArray[np.uint64]) -> None:
    for number in range(len(keys)):
        state = first_state + np.uint64(number + 1) * _GAMMA  # the generator adds _GAMMA before each output
        # Half of the hash above the number, so that a sort orders by hash, then by number.
        keys[number] = (split_mix(state) & _UPPER_MASK) | np.uint64(number)


def lower_halves(keys: NDArray[np.uint64]) -> NDArray[np.uint32]:
    """Return the lower 32 bits of each key, shape (keys,); `keys` is overwritten."""
    count = len(keys)
    # As uint32, key i consists of values 2i (its lower half on little-endian machines) and 2i + 1. Its lower half moves
    # to value i. Ascending, value i is overwritten only after it was read, because i <= 2i.
    numbers = keys.view(np.uint32)
    for chunk in chunk_slices(count):
        numbers[chunk] = numbers[2 * chunk.start : 2 * chunk.stop : 2]
    del numbers
    keys.resize((count + 1) // 2, refcheck=False)  # copies nothing
    return keys.view(np.uint32)[:count]


def chunk_slices(count: int) -> Iterator[slice]:
    """Divide range(count) into slices of up to 65,536 numbers, to fit the CPU cache."""
    return (slice(first, min(first + _CHUNK_VALUES, count)) for first in range(0, count, _CHUNK_VALUES))
