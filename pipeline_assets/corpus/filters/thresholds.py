"""The filters that count: a document beyond a limit on one count, or on one count per another, is dropped.

A batch of documents is counted by one call of compiled code.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import compiled, inner, unaligned_u64_view
from pipeline_assets.corpus.filters.characters import character_classes
from pipeline_assets.corpus.filters.filter import Candidate, Filter, Measurement
from pipeline_assets.corpus.filters.phrases import Scope, build_automaton, find_phrases
from pipeline_assets.corpus.filters.recipe import FilterRecipe, RepetitionRecipe
from pipeline_assets.corpus.filters.repetition import Scratch, allocate_scratch, count_repetition
from pipeline_assets.corpus.filters.words import Count, WordSpans, allocate_spans, find_words
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.section import RecipeSection


@dataclass(frozen=True)
class Threshold:
    """A limit that drops a document beyond it; one at the limit stays.

    Attributes:
        reason: code of what it drops.
        numerator, denominator: the counts; a ratio is 0 where there is nothing to divide by.
        drops: on which side of the limit.
    """

    reason: str
    numerator: Count
    denominator: Count | None
    drops: Literal["<", ">"]
    limit: int | float

    def measure(self, counts: NDArray[np.int64]) -> Measurement:
        """What is held against the limit, from the counts of one document."""
        value: int | float = int(counts[self.numerator])
        if self.denominator is not None:
            value = value / int(counts[self.denominator]) if counts[self.denominator] else 0.0
        is_failed = value < self.limit if self.drops == "<" else value > self.limit
        ends_at_limit = self.numerator is Count.STOP_WORDS  # enough of them is enough
        return Measurement(self.reason, value, self.limit, is_failed, is_lower_bound=ends_at_limit and not is_failed)


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


def thresholds_before_repetition(recipe: FilterRecipe) -> list[Threshold]:
    """Those that one look at each character decides."""
    sections = (recipe.length, _LENGTH), (recipe.characters, _CHARACTERS), (recipe.gopher_quality, _GOPHER_QUALITY)
    return [threshold for section, rows in sections for threshold in _set(section, rows)]


def build_thresholds(recipe: FilterRecipe) -> list[Threshold]:
    """All but those on what `c4` leaves, in the order in which they are asked."""
    return [
        *thresholds_before_repetition(recipe),
        *_set(recipe.repetition, _REPETITION),
        *_set(recipe.boilerplate, _BOILERPLATE),
    ]


def _set(section: RecipeSection | None, rows: Sequence[_Row]) -> Iterator[Threshold]:
    for key, reason, numerator, denominator in rows:
        limit = getattr(section, key, None)
        if limit is not None:
            number = float(limit) if isinstance(limit, str) else limit
            yield Threshold(reason, numerator, denominator, "<" if key.startswith("min_") else ">", number)


class Limits(NamedTuple):
    """Thresholds as arrays, for compiled code.

    Attributes:
        numerator, denominator: columns of the counts, -1 for no second one. int64.
        sign: 1 where more than the limit drops, -1 where less does. float64.
        limit: float64.
    """

    numerator: NDArray[np.int64]
    denominator: NDArray[np.int64]
    sign: NDArray[np.float64]
    limit: NDArray[np.float64]


def threshold_limits(thresholds: Sequence[Threshold]) -> Limits:
    """The arrays of some thresholds."""
    return Limits(
        np.array([threshold.numerator for threshold in thresholds], np.int64),
        np.array(
            [-1 if threshold.denominator is None else threshold.denominator for threshold in thresholds], np.int64
        ),
        np.array([1.0 if threshold.drops == ">" else -1.0 for threshold in thresholds], np.float64),
        np.array([threshold.limit for threshold in thresholds], np.float64),
    )


@inner
def first_violation(counts: NDArray[np.int64], limits: Limits) -> int:
    """The first limit that a document's counts are beyond; -1 if they are within all."""
    for number in range(len(limits.numerator)):
        value = float(counts[limits.numerator[number]])
        if limits.denominator[number] >= 0:
            per = float(counts[limits.denominator[number]])
            value = value / per if per else 0.0
        if (value - limits.limit[number]) * limits.sign[number] > 0:
            return number
    return -1


_PADDING = bytes(8)  # compiled code reads a few bytes beyond the last document
MAX_TEXT_BYTES = 2**31 - 1


class Batch(NamedTuple):
    """Documents one after the other, as UTF-8.

    Attributes:
        text: uint8, with eight zeros beyond the last document.
        offsets: where each begins, and where the last ends; int64.
    """

    text: NDArray[np.uint8]
    offsets: NDArray[np.int64]


def text_batch(texts: Sequence[bytes]) -> Batch:
    """The documents as a batch.

    Raises:
        InputError: a document is too long to count in 32 bits.
    """
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    if len(lengths) and lengths.max() > MAX_TEXT_BYTES:
        fix = "cut the document before it is filtered"
        raise InputError(f"a text of {lengths.max():,} bytes", f"document {int(lengths.argmax())} of a block", fix)
    text = np.frombuffer(b"".join([*texts, _PADDING]), np.uint8)
    return Batch(text, np.concatenate(([0], np.cumsum(lengths))))


@compiled
def _count(
    text: NDArray[np.uint8],
    eights: NDArray[np.uint64],
    offsets: NDArray[np.int64],
    of_code_point: NDArray[np.uint16],
    words: WordSpans,
    scratch: Scratch,
    before_repetition: Limits,
    counts_repetition: bool,
    counts: NDArray[np.int64],
) -> None:
    """Adds to `counts`, shape (documents, kinds), what the words, lines and paragraphs of each document tell.

    Args:
        before_repetition: a document beyond one of these limits is not searched for repetition, which takes longest.
    """
    for document in range(len(offsets) - 1):
        start = offsets[document]
        find_words(text, start, offsets[document + 1] - start, of_code_point, words, counts[document])
        if counts_repetition and first_violation(counts[document], before_repetition) < 0:
            count_repetition(eights[start:], words, scratch, counts[document])


@compiled
def first_failed_rule(counts: NDArray[np.int64], limits: Limits) -> NDArray[np.int64]:
    """For each document the first limit that it is beyond, -1 if it is within all; shape (documents,)."""
    failed = np.empty(len(counts), np.int64)
    for document in range(len(counts)):
        failed[document] = first_violation(counts[document], limits)
    return failed


_COMMON_BYTES = 4 << 20  # of the longest document of most batches


class ThresholdFilter(Filter):
    """Length, characters, Gopher's quality and repetition, boilerplate: what the recipe sets of them."""

    def __init__(self, recipe: FilterRecipe) -> None:
        self._of_code_point = character_classes()
        self._thresholds = build_thresholds(recipe)
        self._limits = threshold_limits(self._thresholds)
        self._before_repetition = threshold_limits(thresholds_before_repetition(recipe))
        self._counts_repetition = recipe.repetition is not None
        self._room = allocate_spans(_COMMON_BYTES), allocate_scratch(_COMMON_BYTES)
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
        batch = text_batch([candidate.text for candidate in candidates])
        counts = self._counts(batch, self._before_repetition)
        self._count_boilerplate(batch, counts, first_failed_rule(counts, self._limits) < 0)
        failed = first_failed_rule(counts, self._limits)
        for document in np.flatnonzero(failed >= 0).tolist():
            candidates[document].fail(self._thresholds[failed[document]].measure(counts[document]))

    def measure(self, candidate: Candidate) -> list[Measurement]:
        """What each threshold of the recipe is held against in a document."""
        batch = text_batch([candidate.text])
        counts = self._counts(batch, threshold_limits([]))
        self._count_boilerplate(batch, counts, np.ones(1, np.bool_))
        return [threshold.measure(counts[0]) for threshold in self._thresholds]

    def _counts(self, batch: Batch, before_repetition: Limits) -> NDArray[np.int64]:
        counts = np.zeros((len(batch.offsets) - 1, len(Count)), np.int64)
        if self._stop_words is not None:
            enough = np.full(len(counts), self._enough_stop_words)
            found = find_phrases(*batch, self._stop_words, self._of_code_point, enough, False)
            counts[:, Count.STOP_WORDS] = found.counts
        longest = int(np.diff(batch.offsets).max(initial=0))
        words, scratch = (
            self._room if longest <= _COMMON_BYTES else (allocate_spans(longest), allocate_scratch(longest))
        )
        text, eights, offsets = batch.text, unaligned_u64_view(batch.text), batch.offsets
        repeats = self._counts_repetition
        _count(text, eights, offsets, self._of_code_point, words, scratch, before_repetition, repeats, counts)
        return counts

    def _count_boilerplate(self, batch: Batch, counts: NDArray[np.int64], wanted: NDArray[np.bool_]) -> None:
        if self._boilerplate is not None:
            enough = np.where(wanted, len(batch.text), 0)
            found = find_phrases(*batch, self._boilerplate, self._of_code_point, enough, True)
            counts[:, Count.BOILERPLATE_LINES] = found.counts
