"""Filter that scores documents by a fastText classifier and stores the scores."""

from collections.abc import Sequence
from pathlib import Path

from pipeline_assets.corpus.filters.classifier import label_probabilities, load_classifier
from pipeline_assets.corpus.filters.filter import Candidate, Filter, Measurement
from pipeline_assets.corpus.filters.recipe import ScoreRecipe
from pipeline_assets.corpus.filters.text_batch import join_texts
from pipeline_assets.spine.errors import UsageError

_SCORE_DIGITS = 6


class ScoreFilter(Filter):
    """Filter by the probability that a classifier gives to the recipe's label.

    The constructor raises UsageError for an unknown label, and InputError for an unusable model.
    """

    def __init__(self, recipe: ScoreRecipe) -> None:
        labels, self._classifier = load_classifier(Path(recipe.model.path))
        if recipe.label not in labels:
            known = ", ".join(labels[:5])
            raise UsageError(f"the classifier has no label {recipe.label}", recipe.model.path, f"choose one of {known}")
        self._label, self._column = labels.index(recipe.label), recipe.column
        self._min_score = None if recipe.min_score is None else float(recipe.min_score)

    def apply(self, candidates: Sequence[Candidate]) -> None:
        """Add scores to documents, and drop documents below the minimum score.

        Raise UsageError if a document already has the column of the score.
        """
        batch = join_texts([candidate.text for candidate in candidates])
        scores = label_probabilities(batch, self._classifier)[:, self._label].tolist()
        for candidate, score in zip(candidates, scores, strict=True):
            if self._column in candidate.meta:
                what, fix = f"the source has a column `{self._column}`", "choose another name for the score's column"
                raise UsageError(what, "filter `score`", fix)
            candidate.scores[self._column] = round(score, _SCORE_DIGITS)
            if (measured := self._measure(candidate)).is_failed:
                candidate.fail(measured)

    def measure(self, candidate: Candidate) -> list[Measurement]:
        """Add the score to a document, as `apply` does; return the measurement."""
        self.apply([candidate])
        return [self._measure(candidate)]

    def _measure(self, candidate: Candidate) -> Measurement:
        score, limit = candidate.scores[self._column], self._min_score
        return Measurement(f"score:{self._column}", score, limit, limit is not None and score < limit)
