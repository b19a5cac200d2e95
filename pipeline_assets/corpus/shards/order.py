"""The order in which rows of several corpora come in a mixture: at every prefix within one row of the weights.

Places count from 1. The k-th row of a corpus of weight w may come once w · place is above k - 1, and is due at place
⌈k / w⌉: come later, it would lag behind by a whole row. At each place comes, of the corpora whose next row may, that
whose is due first, of equals the first by name. To take the one with the largest deficit would let small corpora lag by
more than a row where there are many. (Such windows are those of proportionate fairness, Baruah et al., "Proportionate
Progress", Algorithmica 1996, and the earliest deadline first keeps all of them on one processor.) Windows are whole
numbers: there is no rounding.

Within a corpus rows come in the hashed order of the seed, the corpus' name and its epoch: see `packing.mixture`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import compiled
from pipeline_assets.corpus.packing.mixture import hashed_order

_MOST_SHARES = 1 << 61


@dataclass(frozen=True)
class MixtureOrder:
    """What comes at each place: a corpus, numbered by name, and a row of it; shape (places,). 6 bytes a place."""

    corpora: NDArray[np.uint16]
    rows: NDArray[np.uint32]

    def __len__(self) -> int:
        return len(self.rows)


def fractions_of(weights: Mapping[str, float | str]) -> dict[str, Fraction]:
    """Weights as they are written: 0.1 is a tenth. Raises ValueError where one isn't above 0, or their sum isn't 1."""
    fractions = {name: Fraction(str(weight)) for name, weight in weights.items()}
    for name, weight in fractions.items():
        if weight <= 0:
            raise ValueError(f"the weight of {name} is {weights[name]}: give one above 0, or leave the corpus out")
    if (total := sum(fractions.values())) != 1:
        raise ValueError(f"the weights sum to {total}, not to 1: correct them; text may say what no float does, '1/3'")
    return fractions


def mixture_order(
    corpora: Mapping[str, range], weights: Mapping[str, Fraction], seed: int, rows: int | None
) -> MixtureOrder:
    """
    Args:
        corpora: the rows of each, not empty.
        weights: of each, which sum to 1.
        rows: how many come: a corpus that is at its end begins a new epoch. None for as many as come before one would
            have to.
    Raises:
        ValueError: the weights' common denominator is beyond 2**61.
    """
    names = sorted(corpora)
    whole = math.lcm(*(weights[name].denominator for name in names))
    if whole > _MOST_SHARES:
        raise ValueError(f"the weights are parts of {whole}: round them, so that it is {_MOST_SHARES} at most")
    parts = np.array([int(weights[name] * whole) for name in names], np.int64)
    sizes = [len(corpora[name]) for name in names]
    places, limits = rows, np.full(len(names), np.iinfo(np.int64).max)
    if places is None:
        places, limits = sum(sizes), np.array(sizes, np.int64)
    order = np.empty(places, np.uint16)
    order = order[: _deal(parts, whole, limits, order)]
    numbers = np.empty(len(order), np.uint32)
    for number, name in enumerate(names):
        place, epoch = 0, 0
        while place < len(order):
            of_epoch = hashed_order(sizes[number], seed, "mixture", name, epoch)
            place = _number(order, number, place, of_epoch, corpora[name].start, numbers)
            epoch += 1
    return MixtureOrder(order, numbers)


@compiled
def _deal(parts: NDArray[np.int64], whole: int, limits: NDArray[np.int64], order: NDArray[np.uint16]) -> int:
    """Fills in the corpus of each place; how many places, before one is over its limit."""
    quotients, remainders = whole // parts, whole % parts  # of k / w, where the next row of the corpus is its k-th
    may_come, taken = np.ones(len(parts), np.int64), np.zeros(len(parts), np.int64)
    due = quotients + (remainders > 0)
    for place in range(len(order)):
        first = -1
        for corpus in range(len(parts)):
            if may_come[corpus] <= place + 1 and (first < 0 or due[corpus] < due[first]):
                first = corpus
        if taken[first] == limits[first]:
            return place
        order[place] = first
        taken[first] += 1
        may_come[first] = quotients[first] + 1
        quotients[first] += whole // parts[first]
        remainders[first] += whole % parts[first]
        if remainders[first] >= parts[first]:
            remainders[first] -= parts[first]
            quotients[first] += 1
        due[first] = quotients[first] + (remainders[first] > 0)
    return len(order)


@compiled
def _number(
    order: NDArray[np.uint16], corpus: int, place: int, epoch: NDArray[np.uint32], first: int, rows: NDArray[np.uint32]
) -> int:
    """Fills in the rows of an epoch of a corpus from a place on; the place where the next epoch begins."""
    taken = 0
    for at in range(place, len(order)):
        if order[at] == corpus:
            if taken == len(epoch):
                return at
            rows[at] = epoch[taken] + first
            taken += 1
    return len(order)


def largest_remainders(weights: Sequence[Fraction], total: int) -> list[int]:
    """Whole shares of a total: each rounded down, and one more for those that lose most by it, of equals the first."""
    shares = [int(weight * total) for weight in weights]
    losses = [weight * total - share for weight, share in zip(weights, shares, strict=True)]
    for number in sorted(range(len(shares)), key=lambda number: -losses[number])[: total - sum(shares)]:
        shares[number] += 1
    return shares
