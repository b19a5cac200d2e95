"""Two columns of uint64 in the order of both: what lexsort does, several times as fast where few keys are equal."""

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import compiled

_FEW = 24


def sorted_pairs(keys: NDArray[np.uint64], values: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Both columns by key, then by value."""
    by = np.argsort(keys)
    keys, values = keys[by], values[by]
    _sort_values(keys, values)
    return keys, values


@compiled
def _sort_values(keys: NDArray[np.uint64], values: NDArray[np.uint64]) -> None:
    """Sorts the values of each run of equal keys."""
    start = 0
    while start < len(keys):
        stop = start + 1
        while stop < len(keys) and keys[stop] == keys[start]:
            stop += 1
        if stop - start > _FEW:
            values[start:stop] = np.sort(values[start:stop])
        else:
            for place in range(start + 1, stop):
                value = values[place]
                while place > start and values[place - 1] > value:
                    values[place] = values[place - 1]
                    place -= 1
                values[place] = value
        start = stop
