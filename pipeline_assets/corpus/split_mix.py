"""SplitMix64's finaliser (Steele, Lea, Flood: "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014)."""

import numpy as np

from pipeline_assets.corpus.compiled import inner

_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_30, _27, _31 = np.uint64(30), np.uint64(27), np.uint64(31)


@inner
def split_mix(state: np.uint64) -> np.uint64:
    """A bijection of 64 bits, of which each hangs on all of the state's."""
    state = (state ^ (state >> _30)) * _MIX_1
    state = (state ^ (state >> _27)) * _MIX_2
    return state ^ (state >> _31)
