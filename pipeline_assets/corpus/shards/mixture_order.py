"""Order of the rows of a mixture."""

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import compiled
from pipeline_assets.corpus.packing.hashed_order import hashed_order

_MOST_SHARES = 1 << 61
logger = logging.getLogger("corpusmill")


def rank_places(
    rows: int, batch: int, rank: int, ranks: int, step: int, drop_last: bool, padding: bool = False
) -> range:
    """The places of one rank from a step on, in the order of its batches; `stop` is that of what all ranks are dealt.

    Every rank has as many batches, and at each step as many rows. The last rows, which can't be dealt so, are left
    over: fewer than `ranks`, or than ranks × batch where `drop_last` asks for full batches.

    Args:
        padding: deal every row, and repeat the first rows of the order until each rank has as many, as torch's
            DistributedSampler does without its `drop_last`. Place `rows` and later ones stand for these repeats:
            place p is place p % rows.
    Raises:
        ValueError: a rank that isn't one of `ranks`, or a step or batch that is none; too few rows for one batch;
            both `drop_last` and `padding`.
    """
    if drop_last and padding:
        raise ValueError("drop_last and padding exclude each other: drop the last rows, or repeat the first ones")
    if ranks < 1 or not 0 <= rank < ranks:
        raise ValueError(f"rank is {rank}, of {ranks} ranks: give 0 to ranks - 1")
    if batch < 1 or step < 0:
        raise ValueError(f"batch is {batch}, step {step}: give a batch of 1 or more, a step of 0 or more")
    share = ranks * batch if drop_last else ranks
    dealt = -(-rows // share) * share if padding else rows - rows % share
    if not dealt:
        fix = "give fewer ranks" + ", or a smaller batch" * drop_last
        raise ValueError(f"there are {rows} rows, and {ranks} ranks take {share} at least: {fix}")
    return range(step * ranks * batch + rank, dealt, ranks)


def log_remainder(order: str, rows: int, dealt: int, ranks: int) -> None:
    """Log how many rows of an order its ranks do not read, or read twice. Nothing is logged if each comes once.

    Args:
        dealt: rows of all ranks together, with repeats.
    """
    if dealt < rows:
        hint = "padding=True repeats rows instead"
        logger.warning(
            "%s: the last %d of %d rows are left out over %d ranks; %s", order, rows - dealt, rows, ranks, hint
        )
    elif dealt > rows:
        logger.info("%s: %d of %d rows are repeated over %d ranks", order, dealt - rows, rows, ranks)


@dataclass(frozen=True)
class MixtureOrder:
    """Corpus (numbered in name order) and row of each place, shape (places,)."""

    corpora: NDArray[np.uint16]
    rows: NDArray[np.uint32]  # 6 bytes per place, with the corpus

    def __len__(self) -> int:
        return len(self.rows)


def weight_fractions(weights: Mapping[str, float | str]) -> dict[str, Fraction]:
    """Return weights as exact fractions: 0.1 is a tenth; raise ValueError if invalid."""
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
    """Order the rows of several corpora by weight and seed.

    Args:
        corpora: row numbers of each corpus, at least one.
        weights: weight of each corpus, above 0; they sum to 1.
        rows: length of the order: a corpus that ends begins a new epoch. None ends the order before the first repeat.
    Raises:
        ValueError: the weights' common denominator is above 2**61.
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
        places_of_corpus = np.flatnonzero(order == number)
        for epoch, first in enumerate(range(0, len(places_of_corpus), sizes[number])):
            own = places_of_corpus[first : first + sizes[number]]
            of_epoch = hashed_order(sizes[number], seed, "mixture", name, epoch)[: len(own)]
            numbers[own] = of_epoch + np.uint32(corpora[name].start)
    return MixtureOrder(order, numbers)


@compiled
def _deal(parts: NDArray[np.int64], whole: int, limits: NDArray[np.int64], order: NDArray[np.uint16]) -> int:
    """Fill in the corpus of each place, and count the places until a limit is reached."""
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
