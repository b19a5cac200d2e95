"""Filter of documents by limits on counts and on ratios of counts."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import compiled, compiled_inner, unaligned_u64_view
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
_EARLY_SECTIONS = ("length", "characters", "gopher_quality")  # need no search for repetition or boilerplate


def build_thresholds(recipe: FilterRecipe, sections: Iterable[str] = _ROWS) -> list[Threshold]:
    """Return the thresholds of recipe sections, in the order in which they apply."""
    return [
        Threshold(
            reason=reason,
            numerator=numerator,
            denominator=denominator,
            dropped_side="<" if key.startswith("min_") else ">",
            limit=float(limit) if isinstance(limit, str) else limit,
        )
        for section in sections
        for key, reason, numerator, denominator in _ROWS[section]
        if (limit := getattr(getattr(recipe, section), key, None)) is not None
    ]


class ThresholdArrays(NamedTuple):
    """Thresholds as arrays, for compiled code; shapes are (thresholds,)."""

    numerators: NDArray[np.int64]  # `TextCount` to compare
    denominators: NDArray[np.int64]  # `TextCount` to divide by; -1 for no ratio
    signs: NDArray[np.float64]  # 1 if values above the limit are dropped, -1 if values below it are
    limits: NDArray[np.float64]


def threshold_arrays(thresholds: Sequence[Threshold]) -> ThresholdArrays:
    """Convert thresholds to arrays, for compiled code."""
    denominators = [-1 if threshold.denominator is None else threshold.denominator for threshold in thresholds]
    return ThresholdArrays(
        np.array([threshold.numerator for threshold in thresholds], np.int64),
        np.array(denominators, np.int64),
        np.array([1.0 if threshold.dropped_side == ">" else -1.0 for threshold in thresholds], np.float64),
        np.array([threshold.limit for threshold in thresholds], np.float64),
    )


@compiled_inner
def first_violation(counts: NDArray[np.int64], thresholds: ThresholdArrays) -> int:
    """Return the index of the first limit that a document's counts violate, or -1."""
    for number in range(len(thresholds.numerators)):
        value = float(counts[thresholds.numerators[number]])
        if thresholds.denominators[number] >= 0:
            divisor = float(counts[thresholds.denominators[number]])
            value = value / divisor if divisor else 0.0
        # The sign makes the difference positive on the side that drops; at the limit it is 0, and the document is kept.
        if (value - thresholds.limits[number]) * thresholds.signs[number] > 0:
            return number
    return -1


@compiled
def _fill_text_counts(
    batch: TextBatch,
    u64_view: NDArray[np.uint64],
    classes: NDArray[np.uint16],
    words: WordSpans,
    scratch: Scratch,
    early_thresholds: ThresholdArrays,
    counts_repetition: bool,
    counts: NDArray[np.int64],
) -> None:
    """Fill all columns of `counts` except `STOP_WORDS` and `BOILERPLATE_LINES`.

    `counts` has the shape (documents, len(TextCount)). Documents that violate an early limit get no repetition counts.
    """
    text, offsets = batch
    for document in range(len(offsets) - 1):
        start = offsets[document]
        find_words(text, start, offsets[document + 1] - start, classes, words, counts[document])
        if counts_repetition and first_violation(counts[document], early_thresholds) < 0:
            count_repetition(u64_view[start:], words, scratch, counts[document])


@compiled
def first_violations(counts: NDArray[np.int64], thresholds: ThresholdArrays) -> NDArray[np.int64]:
    """Return the `first_violation` of each document, from its row of `counts`."""
    failed = np.empty(len(counts), np.int64)
    for document in range(len(counts)):
        failed[document] = first_violation(counts[document], thresholds)
    return failed


_REUSED_BYTES = 4 << 20  # most documents fit into arrays of this size, which are allocated once


class ThresholdFilter(Filter):
    """Filter by length, characters, Gopher quality, repetition and boilerplate."""

    def __init__(self, recipe: FilterRecipe) -> None:
        self._thresholds = build_thresholds(recipe)
        self._threshold_arrays = threshold_arrays(self._thresholds)
        self._early_thresholds = threshold_arrays(build_thresholds(recipe, _EARLY_SECTIONS))
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
        counts = self._count_batch(batch, self._early_thresholds)
        self._count_boilerplate(batch, counts, first_violations(counts, self._threshold_arrays) < 0)
        failed = first_violations(counts, self._threshold_arrays)
        for document in np.flatnonzero(failed >= 0).tolist():
            candidates[document].fail(self._thresholds[failed[document]].measure(counts[document]))

    def measure(self, candidate: Candidate) -> list[Measurement]:
        """Measure a document by each threshold of the recipe."""
        batch = join_texts([candidate.text])
        counts = self._count_batch(batch, threshold_arrays([]))
        self._count_boilerplate(batch, counts, np.ones(1, np.bool_))
        return [threshold.measure(counts[0]) for threshold in self._thresholds]

    def _count_batch(self, batch: TextBatch, early_thresholds: ThresholdArrays) -> NDArray[np.int64]:
        counts = np.zeros((len(batch.offsets) - 1, len(TextCount)), np.int64)
        if self._stop_words is not None:
            max_counts = np.full(len(counts), self._max_stop_words)
            hits = find_phrases(batch, self._stop_words, max_counts, False)
            counts[:, TextCount.STOP_WORDS] = hits.counts
        longest = int(np.diff(batch.offsets).max(initial=0))
        fits = longest <= _REUSED_BYTES
        words, scratch = self._reused if fits else (allocate_spans(longest), allocate_scratch(longest))
        u64_view, repeats = unaligned_u64_view(batch.text), self._counts_repetition
        _fill_text_counts(batch, u64_view, character_classes(), words, scratch, early_thresholds, repeats, counts)
        return counts

    def _count_boilerplate(self, batch: TextBatch, counts: NDArray[np.int64], search_mask: NDArray[np.bool_]) -> None:
        if self._boilerplate is not None:
            max_counts = np.where(search_mask, len(batch.text), 0)
            hits = find_phrases(batch, self._boilerplate, max_counts, True)
            counts[:, TextCount.BOILERPLATE_LINES] = hits.counts
