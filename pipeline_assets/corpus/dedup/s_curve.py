"""How likely a pair of documents is proposed, by bands (Leskovec, Rajaraman, Ullman, Mining of Massive Datasets, 3.4.2)
or by binary sketches (Li and König 2010, arXiv 0910.3349).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Banding:
    """A signature cut into bands of so many rows; two documents with all rows of one band alike are compared."""

    bands: int
    rows: int

    def __str__(self) -> str:
        return f"{self.bands} bands of {self.rows} rows"

    def proposes(self, similarity: float) -> float:
        """The probability that one cut of a signature has a pair of this Jaccard similarity compared. `band_keys` cuts
        twice, so it is the least: of what one cut misses at 0.8 with 14 bands of 8 rows, the other finds five in six.
        """
        return float(1 - (1 - similarity**self.rows) ** self.bands)


def bandings(permutations: int) -> Iterator[Banding]:
    """Every way to cut a signature with none of it left over, the fewest rows first."""
    for rows in range(1, permutations + 1):
        if permutations % rows == 0:
            yield Banding(permutations // rows, rows)


def recommended(permutations: int, threshold: float, recall: float) -> Banding:
    """The banding with the most rows, and so the fewest needless comparisons, that still finds so large a part of the
    pairs at the threshold; more of those above it. With one row a band nearly all are found.
    """
    return max(
        (banding for banding in bandings(permutations) if banding.rows == 1 or banding.proposes(threshold) >= recall),
        key=lambda banding: banding.rows,
    )


@dataclass(frozen=True)
class Distance:
    """Binary sketches of so many bits; two documents are compared if at most `max_distance` of them differ."""

    bits: int
    max_distance: int

    def __str__(self) -> str:
        return f"{self.max_distance} of {self.bits} bits may differ"

    def proposes(self, similarity: float) -> float:
        """The probability that a pair of this Jaccard similarity is compared: a bit differs for (1 - s) / 2 of them."""
        differs = (1 - similarity) / 2
        if differs == 0:
            return 1.0
        distances = range(self.max_distance + 1)
        logs = (
            math.log(math.comb(self.bits, distance))
            + distance * math.log(differs)
            + (self.bits - distance) * math.log1p(-differs)
            for distance in distances
        )
        return min(sum(map(math.exp, logs)), 1.0)


def smallest_distance(bits: int, threshold: float, recall: float) -> Distance:
    """The smallest distance that finds so large a part of the pairs at the threshold; just below half of the bits if
    none does.
    """
    most = max(bits // 2 - 1, 0)
    found = (Distance(bits, distance) for distance in range(most))
    return next((one for one in found if one.proposes(threshold) >= recall), Distance(bits, most))
