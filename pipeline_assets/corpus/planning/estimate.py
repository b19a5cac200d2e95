"""Estimate: a number that isn't known yet, how far off it may be, and where it comes from."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Estimate:
    """A number of 0 or more, from `low` to `high`, most likely `likely`.

    Attributes:
        basis: where it comes from, for people: `footers`, `as in earlier builds here`.
    """

    low: float
    likely: float
    high: float
    basis: str

    @property
    def bounds(self) -> tuple[float, float, float]:
        return self.low, self.likely, self.high

    @property
    def is_exact(self) -> bool:
        return self.low == self.high

    def times(self, factor: "Estimate", basis: str | None = None) -> "Estimate":
        """The product, on the factor's basis unless another is given."""
        basis = factor.basis if basis is None else basis
        return Estimate(self.low * factor.low, self.likely * factor.likely, self.high * factor.high, basis)

    def over(self, divisor: "Estimate", basis: str | None = None) -> "Estimate":
        """The quotient, on the divisor's basis unless another is given; the divisor is not 0."""
        basis = divisor.basis if basis is None else basis
        return Estimate(self.low / divisor.high, self.likely / divisor.likely, self.high / divisor.low, basis)

    def at_most(self, most: float) -> "Estimate":
        """No part of it above `most`."""
        return Estimate(min(self.low, most), min(self.likely, most), min(self.high, most), self.basis)

    def counted(self) -> "Estimate":
        """In whole numbers."""
        return Estimate(round(self.low), round(self.likely), round(self.high), self.basis)

    def to_json(self) -> dict[str, float | str]:
        return dict(vars(self))

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Estimate":
        """
        Raises:
            KeyError, TypeError: it is none.
        """
        return cls(value["low"] + 0, value["likely"] + 0, value["high"] + 0, value["basis"])


def exactly(count: float, basis: str) -> Estimate:
    """A number that is known."""
    return Estimate(count, count, count, basis)


def total(estimates: Iterable[Estimate], basis: str) -> Estimate:
    """The sum. Bounds are added too, as if all were off the same way: they mostly are."""
    bounds = [estimate.bounds for estimate in estimates]
    low, likely, high = (sum(column) for column in zip(*bounds, strict=True)) if bounds else (0, 0, 0)
    return Estimate(low, likely, high, basis)
