"""Settings for proposing near duplicates with a required probability."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Banding:
    """Bands of `rows` numbers each; a pair is proposed if its signatures share a band."""

    bands: int
    rows: int

    def __str__(self) -> str:
        return f"{self.bands} band{'s' * (self.bands > 1)} of {self.rows} row{'s' * (self.rows > 1)}"

    def recall(self, similarity: float) -> float:
        """Return a lower bound on the probability that a pair is proposed.

        `similarity` is the Jaccard similarity of the pair. `band_keys` cuts signatures into bands twice; the bound
        counts only the first cut.
        """
        # A band of both documents is equal with a probability of s**rows; a pair is missed if all bands differ.
        return float(1 - (1 - similarity**self.rows) ** self.bands)


def recommend_banding(permutations: int, threshold: float, recall: float) -> Banding:
    """Return the banding with as many rows per band as a required recall allows.

    A pair with similarity `threshold` must be proposed with a probability of at least `recall`. More rows per band mean
    fewer needless comparisons. If no banding reaches `recall`, return bands of one row.
    """
    divisors = (rows for rows in range(permutations, 0, -1) if permutations % rows == 0)
    bandings = (Banding(permutations // rows, rows) for rows in divisors)
    return next(banding for banding in bandings if banding.rows == 1 or banding.recall(threshold) >= recall)


@dataclass(frozen=True)
class DistanceLimit:
    """Rule that proposes a pair if at most `max_distance` of `bits` bits differ."""

    bits: int
    max_distance: int

    def __str__(self) -> str:
        return f"{self.max_distance} of {self.bits} bits may differ"

    def recall(self, similarity: float) -> float:
        """Return the probability that a pair of this Jaccard similarity is proposed."""
        differs = (1 - similarity) / 2  # probability that one bit differs
        if differs == 0:
            return 1.0
        # Sum the binomial probabilities of all distances up to the largest. Logarithms, because binomials are huge.
        logs = (
            math.log(math.comb(self.bits, distance))
            + distance * math.log(differs)
            + (self.bits - distance) * math.log1p(-differs)
            for distance in range(self.max_distance + 1)
        )
        return min(sum(map(math.exp, logs)), 1.0)


def recommend_distance(bits: int, threshold: float, recall: float) -> DistanceLimit:
    """Return the smallest distance limit that reaches a required recall.

    A pair with similarity `threshold` must be proposed with a probability of at least `recall`. If no distance below
    half of the bits reaches `recall`, return the largest distance below half of the bits.
    """
    largest = max(bits // 2 - 1, 0)
    distances = (DistanceLimit(bits, max_distance) for max_distance in range(largest))
    return next(
        (distance for distance in distances if distance.recall(threshold) >= recall), DistanceLimit(bits, largest)
    )
