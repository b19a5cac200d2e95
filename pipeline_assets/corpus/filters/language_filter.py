"""The filter that asks which language a document is in."""

from pipeline_assets.corpus.filters.language import LOOKED_AT, LanguageRecipe, detector
from pipeline_assets.corpus.filters.verdict import Candidate, Filter, Measurement

OTHER_LANGUAGE = "other_language"
_MOST_BYTES = 4  # of a character


class LanguageFilter(Filter):
    """What `LanguageRecipe` keeps."""

    def __init__(self, recipe: LanguageRecipe) -> None:
        """
        Raises:
            UsageError: the detector is not installed.
        """
        self._recipe = recipe
        self._detector = detector(recipe.detector)
        self._limit = f"{', '.join(recipe.keep)} from {recipe.least_score}"

    def measure(self, candidate: Candidate) -> list[Measurement]:
        """The language and its score, `de 0.998`, beside those that are kept, `en, fr from 0.96`."""
        beginning = candidate.text[: _MOST_BYTES * LOOKED_AT].decode("utf-8", "ignore")  # it may end in a character
        found = self._detector.language(beginning)
        value = f"{found.code} {found.score}"
        return [Measurement(OTHER_LANGUAGE, value, self._limit, not self._recipe.keeps(found))]
