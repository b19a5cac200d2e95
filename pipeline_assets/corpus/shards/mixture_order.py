"""Seeded order of a mixture's rows, by weight, the same for any number of ranks.

The order is proportionately fair (Baruah et al., "Proportionate Progress", Algorithmica 1996, for one processor).
Positions count from 1. The k-th row of a corpus of weight w may occur only at positions p with w · p > k - 1.
Its deadline is position ⌈k / w⌉; after that, the corpus would lag behind its weight by a whole row. A position gets the
row with the earliest deadline among the rows that may occur; on ties, the first corpus by name. (If the corpus with the
largest deficit came first, small corpora could lag by more than a row.) All arithmetic is in integers.

Within a corpus, the rows of an epoch are in a `hashed_order` of the seed, the corpus name and the epoch.
"""

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import compiled
from pipeline_assets.corpus.packing.hashed_order import hashed_order

_MAX_DENOMINATOR = 1 << 61
logger = logging.getLogger("corpusmill")


def rank_positions(
    rows: int, batch: int, rank: int, ranks: int, step: int, drop_last: bool, padding: bool = False
) -> range:
    """Return the positions that one rank reads, starting at a step, in order.

    All ranks have the same number of batches, and at each step the same number of rows. The last `rows % ranks` rows
    are skipped, or the last `rows % (ranks * batch)` with `drop_last`; with `padding`, none.

    Args:
        rows: Length of the order.
        batch: Rows per batch of a rank.
        rank: Number of the rank, from 0.
        ranks: Number of ranks.
        step: First step, from 0; each rank reads one batch per step. At the number of steps, no position is left.
        drop_last: Read only full batches.
        padding: Read every row, then repeat the first rows of the order until all ranks have the same number of rows,
            as torch's DistributedSampler does without its `drop_last`. A position p >= rows means position p % rows.

    Returns:
        A range. Its `stop` is the number of positions that all ranks together read, from step 0 to the end.

    Raises:
        ValueError: An argument is out of range, the rows are too few, or both `drop_last` and `padding` are set.
    """
    if drop_last and padding:
        raise ValueError("drop_last and padding exclude each other: drop the last rows, or repeat the first ones")
    if ranks < 1 or not 0 <= rank < ranks:
        raise ValueError(f"rank must be in [0, ranks), got {rank} of {ranks} ranks")
    if batch < 1:
        raise ValueError(f"batch must be >= 1, got {batch}")
    if step < 0:
        raise ValueError(f"step must be >= 0, got {step}")
    share = ranks * batch if drop_last else ranks
    used = -(-rows // share) * share if padding else rows - rows % share  # a multiple of share, rounded up or down
    if not used:
        fixes = ["fewer ranks"] * (ranks > 1) + ["a smaller batch"] * drop_last
        reader = "1 rank needs" if ranks == 1 else f"{ranks} ranks need"
        advice = f": use {', or '.join(fixes)}" if rows else ""  # nothing helps an empty order
        raise ValueError(f"{reader} at least {share} row{'s' * (share > 1)}, got {rows}{advice}")
    if step > (steps := -(-used // (ranks * batch))):
        raise ValueError(
            f"step must be at most {steps}, the batches of an epoch, got {step}: count from the start of its epoch"
        )
    # Ranks take turns: position p is read by rank p % ranks, and a step of all ranks has ranks × batch positions.
    return range(step * ranks * batch + rank, used, ranks)


def log_unread_or_repeated(label: str, rows: int, used_rows: int, ranks: int, drop_last: bool) -> None:
    """Log how many rows of an order the ranks omit or repeat.

    `label` begins the log line. `used_rows` is the number of rows that the ranks read together, including repeats.
    """
    if used_rows < rows and drop_last:
        logger.warning("%s: drop_last skips the last %d of %d rows", label, rows - used_rows, rows)
    elif used_rows < rows:
        text = "%s: %d ranks do not read the last %d of %d rows; padding=True repeats rows instead"
        logger.warning(text, label, ranks, rows - used_rows, rows)
    elif used_rows > rows:
        logger.info("%s: %d ranks repeat %d of %d rows", label, ranks, used_rows - rows, rows)


@dataclass(frozen=True)
class MixtureOrder:
    """Order of rows: corpus and row number at each position, shape (positions,)."""

    corpus_numbers: NDArray[np.uint16]  # indexes in the sorted names of the corpora
    row_numbers: NDArray[np.uint32]  # 6 bytes per position, with the corpus

    def __len__(self) -> int:
        return len(self.row_numbers)


def weight_fractions(weights: Mapping[str, float | str]) -> dict[str, Fraction]:
    """Return weights as fractions; ValueError if one is <= 0 or the sum is not 1."""
    fractions = dict[str, Fraction]()
    for name, weight in weights.items():
        try:
            fractions[name] = Fraction(str(weight))
        except (ValueError, ZeroDivisionError):
            raise ValueError(f"weight of {name} must be a number, such as 0.25 or '1/3', got {weight!r}") from None
        if fractions[name] <= 0:
            raise ValueError(f"weight of {name} must be above 0, got {weight}; remove the corpus to skip it")
    if (total := sum(fractions.values())) != 1:
        raise ValueError(f"weights must sum to 1, got {total}; write exact fractions as text, such as '1/3'")
    return fractions


def mixture_order(
    corpora: Mapping[str, range], weights: Mapping[str, Fraction], seed: int, rows: int | None
) -> MixtureOrder:
    """Order the rows of one or more corpora by weight and seed.

    Args:
        corpora: Rows to read from each corpus.
        weights: Weight of each corpus, from `weight_fractions`.
        seed: Seed of the order within each corpus.
        rows: Length of the order; an exhausted corpus starts a new epoch. None ends the order before any row repeats.

    Raises:
        ValueError: The common denominator of the weights is above 2**61.
    """
    names = sorted(corpora)
    total = math.lcm(*(weights[name].denominator for name in names))
    if total > _MAX_DENOMINATOR:
        raise ValueError(f"common denominator of weights must be at most {_MAX_DENOMINATOR}, got {total}; round them")
    int_weights = np.array([int(weights[name] * total) for name in names], np.int64)
    sizes = [len(corpora[name]) for name in names]
    length, limits = rows, np.full(len(names), np.iinfo(np.int64).max)
    if length is None:
        length, limits = sum(sizes), np.array(sizes, np.int64)
    order = np.empty(length, np.uint16)
    order = order[: _interleave(int_weights, total, limits, order)]
    numbers = np.empty(len(order), np.uint32)
    for number, name in enumerate(names):
        positions = np.flatnonzero(order == number)
        for epoch, first in enumerate(range(0, len(positions), sizes[number])):
            epoch_positions = positions[first : first + sizes[number]]
            epoch_rows = hashed_order(sizes[number], seed, "mixture", name, epoch)[: len(epoch_positions)]
            numbers[epoch_positions] = epoch_rows + np.uint32(corpora[name].start)
    return MixtureOrder(order, numbers)


@compiled
def _interleave(weights: NDArray[np.int64], total: int, limits: NDArray[np.int64], order: NDArray[np.uint16]) -> int:
    """Fill `order` with corpus numbers; return how many positions were filled.

    A corpus's share is weight / `total`. Filling stops before corpus i would get more than `limits[i]` rows.
    """
    # The next row of a corpus is its k-th, its share w is weight / total, and k / w = quotient + remainder / weight.
    # At first k is 1, so k / w is total / weight, and the row may occur from position 1 on.
    quotients, remainders = total // weights, total % weights
    may_come, counts = np.ones(len(weights), np.int64), np.zeros(len(weights), np.int64)
    due = quotients + (remainders > 0)  # ⌈k / w⌉
    for position in range(len(order)):
        first = -1  # corpus whose row is due first; positions count from 1, so this one is `position + 1`
        for corpus in range(len(weights)):
            if may_come[corpus] <= position + 1 and (first < 0 or due[corpus] < due[first]):
                first = corpus
        if counts[first] == limits[first]:
            return position
        order[position] = first
        counts[first] += 1
        # Row k + 1 may occur from the first p with w · p > k, which is ⌊k / w⌋ + 1.
        may_come[first] = quotients[first] + 1
        # Add 1 / w to k / w, for k + 1: add quotients and remainders separately, then carry. Products would overflow.
        quotients[first] += total // weights[first]
        remainders[first] += total % weights[first]
        if remainders[first] >= weights[first]:
            remainders[first] -= weights[first]
            quotients[first] += 1
        due[first] = quotients[first] + (remainders[first] > 0)  # rounded up
    return len(order)
