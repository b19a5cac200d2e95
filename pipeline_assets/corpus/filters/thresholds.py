"""Filter of documents by limits on counts and on ratios of counts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import compiled, unaligned_u64_view
from pipeline_assets.corpus.filters.characters import character_classes
from pipeline_assets.corpus.filters.filter import Candidate, Filter, Measurement
from pipeline_assets.corpus.filters.phrases import PhraseScope, build_automaton, find_phrases
from pipeline_assets.corpus.filters.recipe import FilterRecipe, RepetitionRecipe
from pipeline_assets.corpus.filters.repetition import Scratch, allocate_scratch, count_repetition
from pipeline_assets.corpus.filters.text_batch import TextBatch, join_texts
from pipeline_assets.corpus.filters.words import TextCount, WordSpans, allocate_spans, find_words


@dataclass(frozen=True)
class Threshold:
    """Limit on a count or a ratio; a document exactly at the limit is kept."""

    reason: str  # reason code of dropped documents
    numerator: TextCount  # count to compare with the limit
    denominator: TextCount | None  # count to divide by; None for no ratio; the ratio is 0 if this count is 0
    dropped_side: Literal["<", ">"]  # `<` drops documents below the limit, `>` documents above it
    limit: int | float

    def measure(self, counts: NDArray[np.int64]) -> Measurement:
        """Compare the counts of a document, indexed by `TextCount`, with the limit."""
        value: int | float = int(counts[self.numerator])
        if self.denominator is not None:
            value = value / int(counts[self.denominator]) if counts[self.denominator] else 0.0
        is_failed = value < self.limit if self.dropped_side == "<" else value > self.limit
        ends_at_limit = self.numerator is TextCount.STOP_WORDS  # the search stops when the limit is reached
        return Measurement(self.reason, value, self.limit, is_failed, is_lower_bound=ends_at_limit and not is_failed)


_ThresholdRow = tuple[str, str, TextCount, TextCount | None]  # recipe key, reason code, numerator, denominator
_REPETITION_DENOMINATORS = {"duplicate_lines": TextCount.LINES, "duplicate_paragraphs": TextCount.PARAGRAPHS}
_ROWS: dict[str, list[_ThresholdRow]] = {  # by recipe section
    "length": [
        ("min_characters", "few_characters", TextCount.CHARACTERS, None),
        ("max_characters", "many_characters", TextCount.CHARACTERS, None),
        ("min_words", "few_words", TextCount.WORDS, None),
        ("max_words", "many_words", TextCount.WORDS, None),
    ],
    "characters": [
        ("min_ascii_ratio", "ascii_ratio", TextCount.ASCII_CHARACTERS, TextCount.CHARACTERS),
        ("max_symbol_ratio", "symbol_ratio", TextCount.SYMBOLS, TextCount.WORD_CHARACTERS),
    ],
    "gopher_quality": [
        ("min_mean_word_length", "short_words", TextCount.WORD_CHARACTERS, TextCount.WORDS),
        ("max_mean_word_length", "long_words", TextCount.WORD_CHARACTERS, TextCount.WORDS),
        ("max_hash_ratio", "hash_ratio", TextCount.HASHES, TextCount.WORDS),
        ("max_ellipsis_ratio", "ellipsis_ratio", TextCount.ELLIPSES, TextCount.WORDS),
        ("max_bullet_lines", "bullet_lines", TextCount.BULLET_LINES, TextCount.LINES),
        ("max_ellipsis_lines", "ellipsis_lines", TextCount.ELLIPSIS_LINES, TextCount.LINES),
        ("min_alphabetic_words", "alphabetic_words", TextCount.ALPHABETIC_WORDS, TextCount.WORDS),
        ("min_stop_words", "stop_words", TextCount.STOP_WORDS, None),
    ],
    "repetition": [
        (key, reason, TextCount[reason.upper()], _REPETITION_DENOMINATORS.get(reason, TextCount.WORD_CHARACTERS))
        for key in RepetitionRecipe.model_fields
        for reason in [key.removeprefix("max_")]
    ],
    "boilerplate": [("max_line_fraction", "boilerplate_lines", TextCount.BOILERPLATE_LINES, TextCount.LINES)],
}


def build_thresholds(recipe: FilterRecipe) -> list[Threshold]:
    """Return the thresholds of a recipe, in the order in which they apply."""
    return [
        Threshold(
            reason=reason,
            numerator=numerator,
            denominator=denominator,
            dropped_side="<" if key.startswith("min_") else ">",
            limit=float(limit) if isinstance(limit, str) else limit,
        )
        for section, rows in _ROWS.items()
        for key, reason, numerator, denominator in rows
        if (limit := getattr(getattr(recipe, section), key, None)) is not None
    ]


class _Limits(NamedTuple):
    """Thresholds as arrays; shapes are (thresholds,)."""

    numerators: NDArray[np.int64]  # `TextCount` to compare
    denominators: NDArray[np.int64]  # `TextCount` to divide by; -1 for no ratio
    signs: NDArray[np.float64]  # 1 if values above the limit are dropped, -1 if values below it are
    limits: NDArray[np.float64]

    @classmethod
    def from_thresholds(cls, thresholds: Sequence[Threshold]) -> "_Limits":
        denominators = [-1 if threshold.denominator is None else threshold.denominator for threshold in thresholds]
        return cls(
            np.array([threshold.numerator for threshold in thresholds], np.int64),
            np.array(denominators, np.int64),
            np.array([1.0 if threshold.dropped_side == ">" else -1.0 for threshold in thresholds], np.float64),
            np.array([threshold.limit for threshold in thresholds], np.float64),
        )

    def first_violations(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the index of the first limit that each document violates, or -1.

        `counts` has the shape (documents, len(TextCount)), the result (documents,).
        """
        divisors = np.where(self.denominators >= 0, counts[:, self.denominators], 1).astype(np.float64)
        values = np.divide(counts[:, self.numerators], divisors, out=np.zeros_like(divisors), where=divisors != 0)
        # The sign makes the difference positive on the side that drops; at the limit it is 0, and the document is kept.
        is_violated = (values - self.limits) * self.signs > 0
        return np.where(is_violated.any(axis=1), is_violated.argmax(axis=1), -1)


@compiled
def _fill_text_counts(
    batch: TextBatch,
    u64_view: NDArray[np.uint64],
    classes: NDArray[np.uint16],
    words: WordSpans,
    scratch: Scratch,
    counts_repetition: bool,
    counts: NDArray[np.int64],
) -> None:
    """Fill all columns of `counts` except `STOP_WORDS` and `BOILERPLATE_LINES`.

    `counts` has the shape (documents, len(TextCount)).
    """
    text, offsets = batch
    for document in range(len(offsets) - 1):
        start = offsets[document]
        find_words(text, start, offsets[document + 1] - start, classes, words, counts[document])
        if counts_repetition:
            count_repetition(u64_view[start:], words, scratch, counts[document])


_REUSED_BYTES = 4 << 20  # most documents fit into arrays of this size, which are allocated once


class ThresholdFilter(Filter):
    """Filter by length, characters, Gopher quality, repetition and boilerplate."""

    def __init__(self, recipe: FilterRecipe) -> None:
        self._thresholds = build_thresholds(recipe)
        self._limits = _Limits.from_thresholds(self._thresholds)
        self._counts_repetition = recipe.repetition is not None
        self._reused = allocate_spans(_REUSED_BYTES), allocate_scratch(_REUSED_BYTES)
        quality, boilerplate = recipe.gopher_quality, recipe.boilerplate
        self._max_stop_words = quality.min_stop_words or 0 if quality else 0
        stop_words = [(word, PhraseScope.WORDS) for word in quality.stop_words] if quality else []
        self._stop_words = build_automaton(stop_words) if quality else None
        self._boilerplate = None
        if boilerplate is not None:
            anywhere = [(phrase, PhraseScope.ANYWHERE) for phrase in boilerplate.phrases]
            self._boilerplate = build_automaton([*anywhere, *((line, PhraseScope.LINE) for line in boilerplate.lines)])

    def apply(self, candidates: Sequence[Candidate]) -> None:
        """Drop each document that violates a threshold."""
        if not self._thresholds:
            return
        batch = join_texts([candidate.text for candidate in candidates])
        counts = self._count_batch(batch)
        self._count_boilerplate(batch, counts, self._limits.first_violations(counts) < 0)
        failed = self._limits.first_violations(counts)
        for document in np.flatnonzero(failed >= 0).tolist():
            candidates[document].fail(self._thresholds[failed[document]].measure(counts[document]))

    def measure(self, candidate: Candidate) -> list[Measurement]:
        """Measure a document by each threshold of the recipe."""
        batch = join_texts([candidate.text])
        counts = self._count_batch(batch)
        self._count_boilerplate(batch, counts, np.ones(1, np.bool_))
        return [threshold.measure(counts[0]) for threshold in self._thresholds]

    def _count_batch(self, batch: TextBatch) -> NDArray[np.int64]:
        counts = np.zeros((len(batch.offsets) - 1, len(TextCount)), np.int64)
        if self._stop_words is not None:
            max_counts = np.full(len(counts), self._max_stop_words)
            hits = find_phrases(batch, self._stop_words, max_counts, False)
            counts[:, TextCount.STOP_WORDS] = hits.counts
        longest = int(np.diff(batch.offsets).max(initial=0))
        fits = longest <= _REUSED_BYTES
        words, scratch = self._reused if fits else (allocate_spans(longest), allocate_scratch(longest))
        u64_view, repeats = unaligned_u64_view(batch.text), self._counts_repetition
        _fill_text_counts(batch, u64_view, character_classes(), words, scratch, repeats, counts)
        return counts

    def _count_boilerplate(self, batch: TextBatch, counts: NDArray[np.int64], search_mask: NDArray[np.bool_]) -> None:
        if self._boilerplate is not None:
            max_counts = np.where(search_mask, len(batch.text), 0)
            hits = find_phrases(batch, self._boilerplate, max_counts, True)
            counts[:, TextCount.BOILERPLATE_LINES] = hits.counts
