"""Naive Bayes scores of languages: compiled code that uses py3langid's tables."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import compiled


class LanguageTables(NamedTuple):
    """Automaton and weights of a py3langid model.

    All `feature_counts` are 0 except while `add_feature_scores` runs. Threads can share the array, because that
    function holds the GIL.
    """

    next_states: NDArray[np.uint32]  # by row and byte, shape (rows * 256,)
    state_rows: NDArray[np.uint16]  # row of each state in `next_states`, shape (states,)
    completed_features: NDArray[np.int32]  # index of the feature that each state completes, or -1; shape (states,)
    weights: NDArray[np.float32]  # log-probability of each feature in each language, shape (features, languages)
    feature_counts: NDArray[np.int32]  # number of occurrences of each feature in a text, shape (features,)


@compiled
def add_feature_scores(text: NDArray[np.uint8], tables: LanguageTables, scores: NDArray[np.float64]) -> int:
    """Add a text's feature weights to `scores`; return the count of distinct features.

    `scores` has the shape (languages,). The weights of a feature that occurs n times are multiplied by log(1 + n). Sums
    are float64 and in the order of the text, so that scores rounded to four digits are equal on all processors.
    """
    next_states, state_rows, completed_features, weights, feature_counts = tables
    visited = np.empty(len(text), np.int32)  # distinct features in the order of their first occurrence
    distinct = state = 0
    for byte in text:
        # Each row of the flat table has 256 entries, one per byte.
        state = next_states[np.int64(state_rows[state]) * 256 + byte]
        feature = completed_features[state]
        if feature >= 0:
            if feature_counts[feature] == 0:  # first occurrence in this text
                visited[distinct] = feature
                distinct += 1
            feature_counts[feature] += 1
    for feature in visited[:distinct]:
        factor = math.log1p(feature_counts[feature])  # py3langid weighs a feature by the logarithm of its occurrences
        feature_counts[feature] = 0  # leave the scratch zero for the next text
        for language in range(len(scores)):
            scores[language] += factor * weights[feature, language]
    return distinct
