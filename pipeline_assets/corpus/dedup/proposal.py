"""Proposal of near duplicates: the probability that pairs are compared."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Banding:
    """Signature cut into bands of `rows` numbers.

    Documents that are equal in one band are compared.
    """

    bands: int
    rows: int

    def __str__(self) -> str:
        return f"{self.bands} bands of {self.rows} rows"

    def recall(self, similarity: float) -> float:
        """Return the probability that one cut proposes a pair of this Jaccard similarity.

        `band_keys` cuts twice, so this is a lower bound: with 14 bands of 8 rows, the second cut finds five in six of
        the pairs at 0.8 that the first one misses.
        """
        return float(1 - (1 - similarity**self.rows) ** self.bands)


def recommend_banding(permutations: int, threshold: float, recall: float) -> Banding:
    """Return the banding with the most rows that proposes a share `recall` of pairs.

    The pairs have the Jaccard similarity `threshold`; pairs above it are found more often. More rows mean fewer
    needless comparisons. Every permutation is used. If no banding reaches `recall`, bands have one row.
    """
    divisors = (rows for rows in range(permutations, 0, -1) if permutations % rows == 0)
    bandings = (Banding(permutations // rows, rows) for rows in divisors)
    return next(banding for banding in bandings if banding.rows == 1 or banding.recall(threshold) >= recall)


@dataclass(frozen=True)
class Distance:
    """Largest distance of binary sketches whose documents are compared, in bits."""

    bits: int
    max_distance: int

    def __str__(self) -> str:
        return f"{self.max_distance} of {self.bits} bits may differ"

    def recall(self, similarity: float) -> float:
        """Return the probability that a pair of this Jaccard similarity is proposed.

        Each bit differs with a probability of (1 - s) / 2.
        """
        differs = (1 - similarity) / 2
        if differs == 0:
            return 1.0
        # Binomial probabilities of all distances up to the largest, by logarithms, as the binomials are huge.
        logs = (
            math.log(math.comb(self.bits, distance))
            + distance * math.log(differs)
            + (self.bits - distance) * math.log1p(-differs)
            for distance in range(self.max_distance + 1)
        )
        return min(sum(map(math.exp, logs)), 1.0)


def recommend_distance(bits: int, threshold: float, recall: float) -> Distance:
    """Return the smallest distance that proposes a share `recall` of pairs.

    The pairs have the Jaccard similarity `threshold`. If no distance reaches `recall`, it is just below half of the
    bits.
    """
    largest = max(bits // 2 - 1, 0)
    distances = (Distance(bits, max_distance) for max_distance in range(largest))
    return next(
        (distance for distance in distances if distance.recall(threshold) >= recall),
        Distance(bits, largest),
    )
