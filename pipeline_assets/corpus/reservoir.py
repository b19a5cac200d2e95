"""Reservoirs: k random rows of a stream of unknown length, in one pass.

Random numbers come from SplitMix64 (see `packing.hashed_order`), whose i-th number depends only on seed and i.
Logarithms come from `decimal`, which rounds them correctly on every machine; libm does not.
"""

import decimal
import heapq
from decimal import Decimal
from typing import Generic, Literal, TypeVar

import msgspec

from pipeline_assets.spine.files import seeded_sort_key

T = TypeVar("T")
Algorithm = Literal["classic", "es_weighted"]
_CONTEXT = decimal.Context(prec=28, rounding=decimal.ROUND_HALF_EVEN, Emin=-(10**9), Emax=10**9)
_ONE = Decimal(1)


class SplitMix64(msgspec.Struct):
    """Seeded sequence of 64-bit numbers; `draws` counts the drawn numbers."""

    start: int
    draws: int = 0

    def draw_bits(self) -> int:
        """Draw 64 bits with the SplitMix64 algorithm (Steele et al. 2014)."""
        self.draws += 1
        mixed = (self.start + self.draws * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
        return mixed ^ (mixed >> 31)

    def draw_below(self, limit: int) -> int:
        """Draw a number in 0 … limit - 1, uniform up to a bias of limit / 2^64."""
        return self.draw_bits() * limit >> 64  # floor(fraction · limit), where bits / 2^64 is a fraction in [0, 1)

    def draw_fraction(self) -> Decimal:
        """Draw a fraction in (0, 1)."""
        return _CONTEXT.divide(2 * self.draw_bits() + 1, 1 << 65)  # (bits + 1/2) / 2^64, which is neither 0 nor 1


class Reservoir(Generic[T]):
    """Uniform sample of at most k rows of a stream.

    Algorithm R (Waterman; Vitter 1985, "Random Sampling with a Reservoir").
    """

    def __init__(self, k: int, generator: SplitMix64) -> None:
        self.k, self.generator = k, generator
        self.items: list[T] = []
        self._rows = self._slot = 0

    def advance(self, weight: float = 1.0) -> bool:
        """Advance to the next row, and return whether it is drawn.

        The caller must insert or skip a drawn row. Only a `WeightedReservoir` uses `weight`, which must be above 0.
        """
        self._rows += 1
        self._slot = self._rows - 1 if self._rows <= self.k else self.generator.draw_below(self._rows)
        return self._slot < self.k

    def skip(self) -> None:
        """Skip the drawn row, as if it were not in the stream."""
        self._rows -= 1

    def insert(self, item: T, weight: float = 1.0) -> T | None:
        """Insert the drawn row `item`; return the row that `item` replaced, or None."""
        replaced = self.items[self._slot : self._slot + 1]
        self.items[self._slot : self._slot + 1] = [item]
        return replaced[0] if replaced else None


class WeightedReservoir(Reservoir[T]):
    """Weighted sample of at most k rows of a stream.

    A-ExpJ (Efraimidis and Spirakis 2006, "Weighted random sampling with a reservoir"): rows are drawn as if one by one
    without replacement, with probabilities proportional to the weights of the remaining rows.
    """

    def __init__(self, k: int, generator: SplitMix64) -> None:
        super().__init__(k, generator)
        self._keys: list[tuple[Decimal, int]] = []  # a heap of (log key, place in items)
        self._jump = 0.0  # weight to skip before the next row enters

    def advance(self, weight: float = 1.0) -> bool:
        if len(self.items) < self.k or self._jump <= weight:
            return True
        self._jump -= weight
        return False

    def skip(self) -> None:
        """Skip the drawn row, as if it were not in the stream.

        A full reservoir draws a new jump: the next row would enter too often if the jump that ends in this row were
        kept.
        """
        if len(self.items) == self.k:
            self._jump = self._draw_jump()

    def insert(self, item: T, weight: float = 1.0) -> T | None:
        w, is_full = Decimal(weight), len(self.items) == self.k
        least, self._slot = self._keys[0] if is_full else (None, len(self.items))
        # A drawn row has a key above the least one: log(u) / w > least, so u is drawn in (bound, 1) with the bound
        # exp(least · w), as (1 - bound) · fraction + bound.
        bound = Decimal(0) if least is None else _CONTEXT.exp(_CONTEXT.multiply(least, w))
        u = _CONTEXT.fma(_CONTEXT.subtract(_ONE, bound), self.generator.draw_fraction(), bound)
        key = _CONTEXT.divide(_CONTEXT.ln(u), w), self._slot
        replaced = super().insert(item)
        (heapq.heapreplace if is_full else heapq.heappush)(self._keys, key)
        if len(self.items) == self.k:
            self._jump = self._draw_jump()
        return replaced

    def _draw_jump(self) -> float:
        """Draw the weight to skip: log(v) / least key, with v random in (0, 1)."""
        return float(_CONTEXT.divide(_CONTEXT.ln(self.generator.draw_fraction()), self._keys[0][0]))


def new_reservoir(algorithm: Algorithm, k: int, seed: int) -> Reservoir[T]:
    """Create an empty reservoir for k rows, seeded by sha256 of seed and algorithm."""
    generator = SplitMix64(int.from_bytes(seeded_sort_key(str(seed), "reservoir", algorithm)[:8], "big"))
    return (Reservoir if algorithm == "classic" else WeightedReservoir)(k, generator)
