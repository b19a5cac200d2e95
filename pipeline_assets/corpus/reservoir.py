"""Reservoirs: k random rows of a stream of unknown length, in one pass.

Random numbers come from SplitMix64 (see `packing.mixture`), whose i-th number depends only on seed and i. Logarithms
come from `decimal`, which rounds correctly by its specification, so that a sample does not depend on a version of libm.
"""

import decimal
import heapq
from decimal import Decimal
from typing import Generic, Literal, TypeVar

import msgspec

from pipeline_assets.spine.files import seeded_rank

T = TypeVar("T")
Algorithm = Literal["classic", "es_weighted"]
_EXACT = decimal.Context(prec=28, rounding=decimal.ROUND_HALF_EVEN, Emin=-(10**9), Emax=10**9)
_ONE = Decimal(1)


class SplitMix64(msgspec.Struct):
    """Seeded sequence of 64-bit numbers; `thrown` counts the used ones."""

    start: int
    thrown: int = 0

    def bits(self) -> int:
        self.thrown += 1
        mixed = (self.start + self.thrown * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
        return mixed ^ (mixed >> 31)

    def below(self, things: int) -> int:
        """Draw a number in 0 … things - 1, uniform up to a bias of things / 2^64."""
        return self.bits() * things >> 64

    def fraction(self) -> Decimal:
        """Draw a fraction in (0, 1)."""
        return _EXACT.divide(2 * self.bits() + 1, 1 << 65)

    def log(self) -> Decimal:
        return _EXACT.ln(self.fraction())


class Reservoir(Generic[T]):
    """Uniform sample of at most k rows of a stream.

    Algorithm R (Waterman; Vitter 1985, "Random Sampling with a Reservoir"): row number i draws a place among i, and
    enters if that is one of the first k.
    """

    def __init__(self, k: int, dice: SplitMix64) -> None:
        self.k, self.dice = k, dice
        self.items: list[T] = []
        self._rows = self._place = 0

    def is_selected(self, weight: float = 1.0) -> bool:
        """Check whether the next row enters; if so, call `insert` or `refuse` next."""
        self._rows += 1
        self._place = self._rows - 1 if self._rows <= self.k else self.dice.below(self._rows)
        return self._place < self.k

    def refuse(self) -> None:
        """Skip the selected row, as if it were not in the stream."""
        self._rows -= 1

    def insert(self, item: T, weight: float = 1.0) -> T | None:
        """Insert the selected row, and return the row that it replaces, if any."""
        replaced = self.items[self._place : self._place + 1]
        self.items[self._place : self._place + 1] = [item]
        return replaced[0] if replaced else None


class WeightedReservoir(Reservoir[T]):
    """Weighted sample of at most k rows of a stream.

    A-ExpJ (Efraimidis and Spirakis 2006, "Weighted random sampling with a reservoir"). The result is distributed as if
    rows were drawn one by one without replacement, with probabilities proportional to the remaining weights. A row of
    weight w has the key u^(1/w), u random in (0, 1); the rows with the k largest keys are drawn.
    """

    def __init__(self, k: int, dice: SplitMix64) -> None:
        super().__init__(k, dice)
        self._keys: list[tuple[Decimal, int]] = []  # a heap of (log key, place in items)
        self._jump = 0.0  # weight to skip before the next row enters

    def is_selected(self, weight: float = 1.0) -> bool:
        if len(self.items) < self.k or self._jump <= weight:
            return True
        self._jump -= weight
        return False

    def refuse(self) -> None:
        """Skip the selected row; the next row is selected instead."""

    def insert(self, item: T, weight: float = 1.0) -> T | None:
        w, is_full = Decimal(weight), len(self.items) == self.k
        least, self._place = self._keys[0] if is_full else (None, len(self.items))
        # A key enters if it exceeds the least key, log u / w > log key: u is drawn between that bound and 1.
        bound = Decimal(0) if least is None else _EXACT.exp(_EXACT.multiply(least, w))
        u = _EXACT.fma(_EXACT.subtract(_ONE, bound), self.dice.fraction(), bound)
        key = _EXACT.divide(_EXACT.ln(u), w), self._place
        replaced = super().insert(item)
        (heapq.heapreplace if is_full else heapq.heappush)(self._keys, key)
        if len(self.items) == self.k:
            self._jump = float(_EXACT.divide(self.dice.log(), self._keys[0][0]))
        return replaced


def new_reservoir(algorithm: Algorithm, k: int, seed: int) -> Reservoir[T]:
    """Create an empty reservoir for k rows, seeded by sha256 of seed and algorithm."""
    dice = SplitMix64(int.from_bytes(seeded_rank(str(seed), "reservoir", algorithm)[:8], "big"))
    return (Reservoir if algorithm == "classic" else WeightedReservoir)(k, dice)
