"""k rows of a stream whose length nobody knows, in one pass, each row as likely as any other, or by weights.

Three algorithms share one shape. `is_turn` asks of each row in turn whether it may come in; `put` takes it in. A row
that was asked and is refused counts as though it had never come. All are structs that msgspec writes and reads back,
so that a sample goes on after a cut exactly where it was.

Random numbers are SplitMix64's (see `packing.mixture`): the i-th depends on the seed and i alone. Logarithms are those
of `decimal`, which its specification rounds to the last digit: no libm, and no version of one, has a say in a sample.
"""

import decimal
import heapq
from decimal import Decimal
from typing import Generic, Literal, TypeVar

import msgspec

from pipeline_assets.corpus.spine.files import rank

T = TypeVar("T")
Algorithm = Literal["l", "classic", "es_weighted"]
_EXACT = decimal.Context(prec=28, rounding=decimal.ROUND_HALF_EVEN, Emin=-(10**9), Emax=10**9)
_ONE = Decimal(1)


class Dice(msgspec.Struct):
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


class _Reservoir(msgspec.Struct, Generic[T]):
    """Rows held so far; `gap` more pass by before the next is asked, and a source that can skip some takes them off.

    Each kind has `is_turn`, whether the next row may come in, and `put`, which takes it in and gives the row that
    leaves for it, None where there was room. Only `Weighted` looks at weights.
    """

    k: int
    dice: Dice
    items: list[T] = []
    gap: int = 0

    def refuse(self) -> None:
        """The row whose turn it is doesn't come in: the next that could has its turn."""

    def _placed(self, place: int, item: T) -> T | None:
        left = self.items[place : place + 1]
        self.items[place : place + 1] = [item]
        return left[0] if left else None


class Classic(_Reservoir[T], Generic[T], tag="classic"):
    """Algorithm R (Waterman; Vitter 1985, "Random Sampling with a Reservoir"), the one to read first: row number i
    draws a place among i, and comes in if that is one of the k.
    """

    asked: int = 0
    place: int = 0

    def is_turn(self, weight: float = 1.0) -> bool:
        self.asked += 1
        self.place = self.asked - 1 if self.asked <= self.k else self.dice.below(self.asked)
        return self.place < self.k

    def refuse(self) -> None:
        self.asked -= 1

    def put(self, item: T, weight: float = 1.0) -> T | None:
        return self._placed(self.place, item)


class SkippingL(_Reservoir[T], Generic[T], tag="l"):
    """Algorithm L (Li 1994, "Reservoir-Sampling Algorithms of Time Complexity O(n(1 + log(N/n)))"): draws how many rows
    pass by before the next comes in. `log_w` is the logarithm of his W.
    """

    log_w: Decimal = Decimal(0)

    def is_turn(self, weight: float = 1.0) -> bool:
        is_now = self.gap == 0
        self.gap -= not is_now
        return is_now

    def put(self, item: T, weight: float = 1.0) -> T | None:
        is_full = len(self.items) == self.k
        left = self._placed(self.dice.below(self.k) if is_full else len(self.items), item)
        if len(self.items) == self.k:
            self.log_w = _EXACT.add(self.log_w, _EXACT.divide(self.dice.log(), self.k))
            none_enters = _EXACT.ln(_EXACT.subtract(_ONE, _EXACT.exp(self.log_w)))
            self.gap = int(_EXACT.divide(self.dice.log(), none_enters))
        return left


class Weighted(_Reservoir[T], Generic[T], tag="es_weighted"):
    """A-ExpJ (Efraimidis and Spirakis 2006, "Weighted random sampling with a reservoir"): as if rows were drawn one
    after the other without replacement, each by its share of the weight that is left.

    A row of weight w has the key u^(1/w), u random in (0, 1), and the k largest keys stay.
    `keys` is a heap of (log key, place in items); `jump` is the weight that passes by before the next row.
    """

    keys: list[tuple[Decimal, int]] = []
    jump: float = 0.0

    def is_turn(self, weight: float = 1.0) -> bool:
        if len(self.items) < self.k or self.jump <= weight:
            return True
        self.jump -= weight
        return False

    def put(self, item: T, weight: float = 1.0) -> T | None:
        w, is_full = Decimal(weight), len(self.items) == self.k
        least, place = self.keys[0] if is_full else (None, len(self.items))
        bound = Decimal(0) if least is None else _EXACT.exp(_EXACT.multiply(least, w))  # the least u that may come in
        u = _EXACT.fma(_EXACT.subtract(_ONE, bound), self.dice.fraction(), bound)
        left = self._placed(place, item)
        (heapq.heapreplace if is_full else heapq.heappush)(self.keys, (_EXACT.divide(_EXACT.ln(u), w), place))
        if len(self.items) == self.k:
            self.jump = float(_EXACT.divide(self.dice.log(), self.keys[0][0]))
        return left


Reservoir = Classic[T] | SkippingL[T] | Weighted[T]


def new_reservoir(algorithm: Algorithm, k: int, seed: int) -> Reservoir[T]:
    """An empty one for k rows; its dice begin at the sha256 of seed and algorithm."""
    dice = Dice(int.from_bytes(rank(str(seed), "reservoir", algorithm)[:8], "big"))
    return SkippingL(k, dice) if algorithm == "l" else (Classic if algorithm == "classic" else Weighted)(k, dice)
