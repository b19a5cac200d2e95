"""The filters that count: documents beyond a threshold of the recipe are dropped."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.filters.code_points import character_classes
from pipeline_assets.corpus.filters.counting import Batch, Workspace, batch_of, count_batch, first_failed
from pipeline_assets.corpus.filters.phrase_search import count_phrases, lines_with_phrases
from pipeline_assets.corpus.filters.phrases import Scope, build_automaton
from pipeline_assets.corpus.filters.recipe import FilterRecipe
from pipeline_assets.corpus.filters.thresholds import Limits, limits_of, thresholds_before_repetition, thresholds_of
from pipeline_assets.corpus.filters.verdict import Candidate, Measurement
from pipeline_assets.corpus.filters.words import Count


class ThresholdFilter:
    """Length, characters, Gopher's quality and repetition, boilerplate: what the recipe sets of them."""

    def __init__(self, recipe: FilterRecipe) -> None:
        self._classes = character_classes()
        self._thresholds = thresholds_of(recipe)
        self._limits = limits_of(self._thresholds)
        self._before_repetition = limits_of(thresholds_before_repetition(recipe))
        self._counts_repetition = recipe.repetition is not None
        self._workspace = Workspace()
        quality, boilerplate = recipe.gopher_quality, recipe.boilerplate
        self._enough_stop_words = quality.min_stop_words or 0 if quality else 0
        self._stop_words = build_automaton([(word, Scope.WORDS) for word in quality.stop_words]) if quality else None
        self._boilerplate = None
        if boilerplate is not None:
            anywhere = [(phrase, Scope.ANYWHERE) for phrase in boilerplate.phrases]
            self._boilerplate = build_automaton([*anywhere, *((line, Scope.LINE) for line in boilerplate.lines)])

    def apply(self, candidates: Sequence[Candidate]) -> None:
        """Fails each document that is beyond a threshold."""
        if not self._thresholds:
            return
        batch = batch_of([candidate.text for candidate in candidates])
        counts = self._counts(batch, self._before_repetition)
        if self._boilerplate is not None:
            is_within = first_failed(counts, self._limits) < 0
            counts[:, Count.BOILERPLATE_LINES] = self._boilerplate_lines(batch, is_within)
        failed = first_failed(counts, self._limits)
        for document in np.flatnonzero(failed >= 0).tolist():
            candidates[document].fail(self._thresholds[failed[document]].measure(counts[document]))

    def measure(self, candidate: Candidate) -> list[Measurement]:
        """What each threshold of the recipe is held against in a document."""
        batch = batch_of([candidate.text])
        counts = self._counts(batch, limits_of([]))
        if self._boilerplate is not None:
            counts[:, Count.BOILERPLATE_LINES] = self._boilerplate_lines(batch, np.ones(1, np.bool_))
        return [threshold.measure(counts[0]) for threshold in self._thresholds]

    def _counts(self, batch: Batch, before_repetition: Limits) -> NDArray[np.int64]:
        counts = np.zeros((len(batch.offsets) - 1, len(Count)), np.int64)
        if self._stop_words is not None:
            counts[:, Count.STOP_WORDS] = count_phrases(
                batch.text, batch.offsets, self._stop_words, self._classes.of_code_point, self._enough_stop_words
            )
        count_batch(batch, self._classes, self._workspace, counts, before_repetition, self._counts_repetition)
        return counts

    def _boilerplate_lines(self, batch: Batch, wanted: NDArray[np.bool_]) -> NDArray[np.int64]:
        assert self._boilerplate is not None
        return lines_with_phrases(batch.text, batch.offsets, self._boilerplate, self._classes.of_code_point, wanted)[1]
