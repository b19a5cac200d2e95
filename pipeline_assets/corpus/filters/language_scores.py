"""Compiled naive Bayes scores over the tables of py3langid."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import compiled


class LanguageTables(NamedTuple):
    """Automaton and weights of a py3langid model.

    Attributes:
        moves: Next state by row and byte, shape (rows * 256,).
        move_rows: Row of each state in `moves`, shape (states,).
        features: Index of the feature that each state completes, or -1; shape (states,).
        weights: Log-probability of each feature in each language, shape (features, languages).
        counts: Scratch, zero between calls, shape (features,). Threads can share it, because a call holds the GIL.
    """

    moves: NDArray[np.uint32]
    move_rows: NDArray[np.uint16]
    features: NDArray[np.int32]
    weights: NDArray[np.float32]
    counts: NDArray[np.int32]


@compiled
def add_feature_scores(text: NDArray[np.uint8], tables: LanguageTables, scores: NDArray[np.float64]) -> int:
    """Add a text's feature weights to `scores`; return the count of distinct features.

    `scores` has the shape (languages,). The weights of a feature that occurs n times are multiplied by log(1 + n).
    Sums are float64 and in the order of the text, so that scores with four digits are equal on all processors.
    """
    moves, rows, features, weights, counts = tables
    visited = np.empty(len(text), np.int32)  # distinct features in the order of their first occurrence
    distinct = state = 0
    for byte in text:
        state = moves[np.int64(rows[state]) * 256 + byte]  # each row of the flat table has 256 entries, one per byte
        feature = features[state]
        if feature >= 0:
            if counts[feature] == 0:  # first occurrence in this text
                visited[distinct] = feature
                distinct += 1
            counts[feature] += 1
    for feature in visited[:distinct]:
        factor = math.log1p(counts[feature])  # py3langid weighs a feature by the logarithm of its occurrences
        counts[feature] = 0  # leave the scratch zero for the next text
        for language in range(len(scores)):
            scores[language] += factor * weights[feature, language]
    return distinct
