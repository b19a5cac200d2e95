"""How likely bands propose a pair of documents (Leskovec, Rajaraman, Ullman, Mining of Massive Datasets, 3.4.2)."""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Banding:
    """A signature cut into bands of so many rows; two documents with all rows of one band alike are compared."""

    bands: int
    rows: int

    def proposes(self, similarity: float) -> float:
        """The probability that a pair of this Jaccard similarity is compared."""
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
