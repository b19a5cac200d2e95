"""Thresholds: limits on what is counted in a document, or on one count per another."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import compiled
from pipeline_assets.corpus.filters.recipe import FilterRecipe, RepetitionRecipe
from pipeline_assets.corpus.filters.verdict import Measurement
from pipeline_assets.corpus.filters.words import Count
from pipeline_assets.corpus.spine.recipe import RecipePart


@dataclass(frozen=True)
class Threshold:
    """A limit that drops a document beyond it; one at the limit stays.

    Attributes:
        reason: code of what it drops.
        of, per: the counts; a ratio is 0 where there is nothing to divide by.
        drops: on which side of the limit.
    """

    reason: str
    of: Count
    per: Count | None
    drops: Literal["<", ">"]
    limit: int | float

    def measure(self, counts: NDArray[np.int64]) -> Measurement:
        """What is held against the limit, from the counts of one document."""
        value: int | float = int(counts[self.of])
        if self.per is not None:
            value = value / int(counts[self.per]) if counts[self.per] else 0.0
        is_failed = value < self.limit if self.drops == "<" else value > self.limit
        ends_at_limit = self.of is Count.STOP_WORDS  # enough of them is enough
        return Measurement(self.reason, value, self.limit, is_failed, is_least=ends_at_limit and not is_failed)


_Row = tuple[str, str, Count, Count | None]  # the recipe's key, the reason, and the counts
_LENGTH: list[_Row] = [
    ("min_characters", "few_characters", Count.CHARACTERS, None),
    ("max_characters", "many_characters", Count.CHARACTERS, None),
    ("min_words", "few_words", Count.WORDS, None),
    ("max_words", "many_words", Count.WORDS, None),
]
_CHARACTERS: list[_Row] = [
    ("min_ascii_ratio", "ascii_ratio", Count.ASCII_CHARACTERS, Count.CHARACTERS),
    ("max_symbol_ratio", "symbol_ratio", Count.SYMBOLS, Count.WORD_CHARACTERS),
]
_GOPHER_QUALITY: list[_Row] = [
    ("min_mean_word_length", "short_words", Count.WORD_CHARACTERS, Count.WORDS),
    ("max_mean_word_length", "long_words", Count.WORD_CHARACTERS, Count.WORDS),
    ("max_hash_ratio", "hash_ratio", Count.HASHES, Count.WORDS),
    ("max_ellipsis_ratio", "ellipsis_ratio", Count.ELLIPSES, Count.WORDS),
    ("max_bullet_lines", "bullet_lines", Count.BULLET_LINES, Count.LINES),
    ("max_ellipsis_lines", "ellipsis_lines", Count.ELLIPSIS_LINES, Count.LINES),
    ("min_alphabetic_words", "alphabetic_words", Count.ALPHABETIC_WORDS, Count.WORDS),
    ("min_stop_words", "stop_words", Count.STOP_WORDS, None),
]
_REPEATED_OF = {"duplicate_lines": Count.LINES, "duplicate_paragraphs": Count.PARAGRAPHS}
_REPETITION: list[_Row] = [
    (key, reason, Count[reason.upper()], _REPEATED_OF.get(reason, Count.WORD_CHARACTERS))
    for key in RepetitionRecipe.model_fields
    for reason in [key.removeprefix("max_")]
]
_BOILERPLATE: list[_Row] = [("max_line_fraction", "boilerplate_lines", Count.BOILERPLATE_LINES, Count.LINES)]
_C4: list[_Row] = [("min_sentences", "few_sentences", Count.SENTENCES, None)]


def thresholds_before_repetition(recipe: FilterRecipe) -> list[Threshold]:
    """Those that one look at each character decides."""
    sections = (recipe.length, _LENGTH), (recipe.characters, _CHARACTERS), (recipe.gopher_quality, _GOPHER_QUALITY)
    return [threshold for section, rows in sections for threshold in _set(section, rows)]


def thresholds_of(recipe: FilterRecipe) -> list[Threshold]:
    """All but those on what `c4` leaves, in the order in which they are asked."""
    return [
        *thresholds_before_repetition(recipe),
        *_set(recipe.repetition, _REPETITION),
        *_set(recipe.boilerplate, _BOILERPLATE),
    ]


def thresholds_after_removal(recipe: FilterRecipe) -> list[Threshold]:
    """Those on what `c4` leaves."""
    return list(_set(recipe.c4, _C4))


def _set(section: RecipePart | None, rows: Sequence[_Row]) -> Iterator[Threshold]:
    for key, reason, of, per in rows:
        limit = getattr(section, key, None)
        if limit is not None:
            number = float(limit) if isinstance(limit, str) else limit
            yield Threshold(reason, of, per, "<" if key.startswith("min_") else ">", number)


class Limits(NamedTuple):
    """Thresholds as arrays, for compiled code.

    Attributes:
        of, per: columns of the counts, -1 for no second one. int64.
        sign: 1 where more than the limit drops, -1 where less does. float64.
        limit: float64.
    """

    of: NDArray[np.int64]
    per: NDArray[np.int64]
    sign: NDArray[np.float64]
    limit: NDArray[np.float64]


def limits_of(thresholds: Sequence[Threshold]) -> Limits:
    """The arrays of some thresholds."""
    return Limits(
        np.array([threshold.of for threshold in thresholds], np.int64),
        np.array([-1 if threshold.per is None else threshold.per for threshold in thresholds], np.int64),
        np.array([1.0 if threshold.drops == ">" else -1.0 for threshold in thresholds], np.float64),
        np.array([threshold.limit for threshold in thresholds], np.float64),
    )


@compiled
def first_beyond(counts: NDArray[np.int64], limits: Limits) -> int:
    """The first limit that a document's counts are beyond; -1 if they are within all."""
    for number in range(len(limits.of)):
        value = float(counts[limits.of[number]])
        if limits.per[number] >= 0:
            per = float(counts[limits.per[number]])
            value = value / per if per else 0.0
        if (value - limits.limit[number]) * limits.sign[number] > 0:
            return number
    return -1
