"""Reservoirs: k rows of a stream of unknown length, in one pass, each row as likely as any other, or by weights.

Random numbers are SplitMix64's (see `packing.mixture`): the i-th depends on the seed and i alone. Logarithms are those
of `decimal`, which its specification rounds to the last digit: no libm, and no version of one, has a say in a sample.
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
    """A seeded sequence of numbers of 64 bits, at its `thrown`-th."""

    start: int
    thrown: int = 0

    def bits(self) -> int:
        self.thrown += 1
        mixed = (self.start + self.thrown * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
        return mixed ^ (mixed >> 31)

    def below(self, things: int) -> int:
        """0 … things - 1, each as likely but for things / 2^64."""
        return self.bits() * things >> 64

    def fraction(self) -> Decimal:
        """Above 0, below 1."""
        return _EXACT.divide(2 * self.bits() + 1, 1 << 65)

    def log(self) -> Decimal:
        return _EXACT.ln(self.fraction())


class Reservoir(Generic[T]):
    """At most k rows of a stream, in one pass, by Algorithm R.

    Algorithm R (Waterman; Vitter 1985, "Random Sampling with a Reservoir"): row number i draws a place among i, and
    enters if that is one of the k.
    """

    def __init__(self, k: int, dice: SplitMix64) -> None:
        self.k, self.dice = k, dice
        self.items: list[T] = []
        self._rows = self._place = 0

    def is_selected(self, weight: float = 1.0) -> bool:
        """Check whether the next row may enter; if so, `put` or `refuse` comes next."""
        self._rows += 1
        self._place = self._rows - 1 if self._rows <= self.k else self.dice.below(self._rows)
        return self._place < self.k

    def refuse(self) -> None:
        """Leave out the row whose turn it is, as though it had never come."""
        self._rows -= 1

    def insert(self, item: T, weight: float = 1.0) -> T | None:
        """Take in the row whose turn it is, and return the one that it replaces, if any."""
        replaced = self.items[self._place : self._place + 1]
        self.items[self._place : self._place + 1] = [item]
        return replaced[0] if replaced else None


class WeightedReservoir(Reservoir[T]):
    """At most k rows of a stream, in one pass, by weights.

    A-ExpJ (Efraimidis and Spirakis 2006, "Weighted random sampling with a reservoir"): as if rows were drawn one after
    the other without replacement, each by its share of the remaining weight. A row of weight w has the key u^(1/w), u
    random in (0, 1), and the rows with the k largest keys are drawn.
    """

    def __init__(self, k: int, dice: SplitMix64) -> None:
        super().__init__(k, dice)
        self._keys: list[tuple[Decimal, int]] = []  # a heap of (log key, place in items)
        self._jump = 0.0  # weight that passes by before the next row enters

    def is_selected(self, weight: float = 1.0) -> bool:
        if len(self.items) < self.k or self._jump <= weight:
            return True
        self._jump -= weight
        return False

    def refuse(self) -> None:
        """Leave out the row whose turn it is: the next that can enter has its turn."""

    def insert(self, item: T, weight: float = 1.0) -> T | None:
        w, is_full = Decimal(weight), len(self.items) == self.k
        least, self._place = self._keys[0] if is_full else (None, len(self.items))
        bound = Decimal(0) if least is None else _EXACT.exp(_EXACT.multiply(least, w))  # the least u that may enter
        u = _EXACT.fma(_EXACT.subtract(_ONE, bound), self.dice.fraction(), bound)
        key = _EXACT.divide(_EXACT.ln(u), w), self._place
        replaced = super().insert(item)
        (heapq.heapreplace if is_full else heapq.heappush)(self._keys, key)
        if len(self.items) == self.k:
            self._jump = float(_EXACT.divide(self.dice.log(), self._keys[0][0]))
        return replaced


def new_reservoir(algorithm: Algorithm, k: int, seed: int) -> Reservoir[T]:
    """Return an empty reservoir for k rows; its dice begin at the sha256 of seed and algorithm."""
    dice = SplitMix64(int.from_bytes(seeded_rank(str(seed), "reservoir", algorithm)[:8], "big"))
    return (Reservoir if algorithm == "classic" else WeightedReservoir)(k, dice)
