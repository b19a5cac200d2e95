"""Verdicts of filters on documents: in batches, of one document with all that was measured, and as lines of a file."""

import functools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from pipeline_assets.corpus.filters.language import DETECTED_CHARACTERS, LanguageRecipe, detector
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, read_structs
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.manifest import StageVersion

if TYPE_CHECKING:
    from pipeline_assets.corpus.filters.recipe import FilterRecipe

FILTER_STAGE = StageVersion("filter", 3)
DROPPED_FILE = f"dropped{SUFFIX}"
OTHER_LANGUAGE = "other_language"
_CHARACTER_BYTES = 4  # at most
Value = int | float | str | bool | None


@dataclass(frozen=True)
class Measurement:
    """What one filter saw in a document: `ascii_ratio 0.43 < 0.8`.

    Attributes:
        reason: the code under which the filter drops.
        value: what was measured: a number, a column's value, a phrase that was found (None if there is none).
        limit: what it is held against; None where finding a phrase is enough.
        is_failed: whether the document is dropped for it.
        is_lower_bound: whether counting ended at the value, so that there may be more.
    """

    reason: str
    value: Value
    limit: Value
    is_failed: bool
    is_lower_bound: bool = False

    def __str__(self) -> str:
        if self.is_lower_bound:
            return f"{self.reason} at least {self.value}"
        if self.limit is None:
            return f"{self.reason} {self.value or 'none'}"
        value, limit = self.value, self.limit
        if isinstance(value, int | float) and isinstance(limit, int | float):
            comparison = "=" if value == limit else "<" if value < limit else ">"
            return f"{self.reason} {_format_near_limit(value, limit)} {comparison} {limit:g}"
        if " " in self.reason:  # a rule says its limit itself
            return f"{self.reason}: {value!r}"
        return f"{self.reason} {value}; kept: {limit}"


def _format_near_limit(value: float, limit: float) -> str:
    """A number in as few digits, three or more, as don't make it look like another one that is the limit."""
    short = (f"{value:.{digits}g}" for digits in range(3, 17))
    return str(value) if isinstance(value, int) else next((text for text in short if float(text) != limit), str(value))


@dataclass(slots=True)
class Candidate:
    """A document on its way through the filters.

    Attributes:
        text: UTF-8, as the filters before have left it.
        meta: the columns that came with it.
        failure: what the first filter that drops it saw; None while it may be kept.
        changes: how much was removed or masked in it: `masked/email`, `removed_lines/few_words`, …
    """

    text: bytes
    meta: Mapping[str, Any]
    failure: Measurement | None = None
    changes: dict[str, int] = field(default_factory=dict)

    def fail(self, measurement: Measurement) -> None:
        """Drops the document, unless an earlier filter did."""
        self.failure = self.failure or measurement

    def count(self, name: str, changes: int) -> None:
        """Counts what was removed or masked; nothing isn't counted."""
        if changes:
            self.changes[name] = changes


class Filter(ABC):
    """One section of a recipe, or several, ready to be asked."""

    @abstractmethod
    def measure(self, candidate: Candidate) -> Iterable[Measurement]:
        """What it sees in a document, in the order in which it is asked; the text is changed as `apply` does."""

    def apply(self, candidates: Sequence[Candidate]) -> None:
        """Fails documents, or changes their text."""
        for candidate in candidates:
            candidate.failure = next((seen for seen in self.measure(candidate) if seen.is_failed), None)


@dataclass(frozen=True)
class Verdict:
    """What becomes of a document.

    Attributes:
        reason: code of the first filter that drops it; None if it is kept.
        measurements: what every filter of the recipe saw, in the order in which they are asked; those after the one
            that drops it too.
        text: as it is written if it is kept: without the lines that are removed, with addresses masked.
        changes: as in `Candidate`.
    """

    reason: str | None
    measurements: tuple[Measurement, ...]
    text: str
    changes: Mapping[str, int]

    @property
    def is_kept(self) -> bool:
        return self.reason is None


class LanguageFilter(Filter):
    """What `LanguageRecipe` keeps."""

    def __init__(self, recipe: LanguageRecipe) -> None:
        """
        Raises:
            UsageError: the detector is not installed.
        """
        self._recipe = recipe
        self._detector = detector(recipe.detector)
        self._limit = f"{', '.join(recipe.keep)} from {recipe.min_score}"

    def measure(self, candidate: Candidate) -> list[Measurement]:
        """The language and its score, `de 0.998`, beside those that are kept, `en, fr from 0.96`."""
        # It may end within a character.
        beginning = candidate.text[: _CHARACTER_BYTES * DETECTED_CHARACTERS].decode("utf-8", "ignore")
        found = self._detector.language(beginning)
        value = f"{found.code} {found.score}"
        return [Measurement(OTHER_LANGUAGE, value, self._limit, not self._recipe.keeps(found))]


@functools.lru_cache(maxsize=8)
def build_filters(recipe: "FilterRecipe") -> tuple[Filter, ...]:
    """The recipe's filters but for `windows`, in the order in which they are asked; tables are built once.

    Raises:
        UsageError: what tells languages is not installed.
    """
    # They load compiled code, which who reads a verdict need not.
    from pipeline_assets.corpus.filters.c4 import C4Filter
    from pipeline_assets.corpus.filters.column_rules import ColumnFilter
    from pipeline_assets.corpus.filters.masking import Masking
    from pipeline_assets.corpus.filters.thresholds import ThresholdFilter
    from pipeline_assets.corpus.filters.wikipedia import WikipediaFilter

    filters: list[Filter] = [ColumnFilter(recipe.rules)]
    if recipe.wikipedia is not None:
        filters.append(WikipediaFilter(recipe.wikipedia))
    filters.append(ThresholdFilter(recipe))
    if recipe.language is not None:  # it takes ten times as long as what is asked before
        filters.append(LanguageFilter(recipe.language))
    if recipe.c4 is not None:
        filters.append(C4Filter(recipe.c4))
    if recipe.masking is not None:
        filters.append(Masking(recipe.masking))
    return tuple(filters)


def apply_filters(candidates: Sequence[Candidate], recipe: "FilterRecipe") -> None:
    """Drops and changes documents as the recipe says. What an earlier filter drops, a later one doesn't see.

    Raises:
        UsageError: a rule over a column that a document doesn't have, or can't be compared; as `build_filters`.
    """
    for step in build_filters(recipe):
        step.apply([candidate for candidate in candidates if candidate.failure is None])


def evaluate(text: str, meta: Mapping[str, Any], recipe: "FilterRecipe") -> Verdict:
    """What becomes of one document, and all that the filters see in it. The same verdict as in any batch. Of other
    documents it knows nothing: what `windows` drops is not seen here.

    Raises:
        UsageError: as `apply_filters`.
    """
    candidate = Candidate(text.encode("utf-8"), meta)
    seen = [measurement for step in build_filters(recipe) for measurement in step.measure(candidate)]
    reason = next((measurement.reason for measurement in seen if measurement.is_failed), None)
    return Verdict(reason, tuple(seen), candidate.text.decode("utf-8"), candidate.changes)


class DroppedLine(msgspec.Struct, frozen=True):
    """A document that a filter dropped: which, why, what was measured and beyond which threshold (null where there is
    none), and its place in the corpus that was filtered.
    """

    doc_id: str
    reason: str
    value: Value
    threshold: Value
    shard: str
    row: int

    def __str__(self) -> str:
        return str(Measurement(self.reason, self.value, self.threshold, is_failed=True))


def read_dropped(filtered: Artifact) -> Iterator[DroppedLine]:
    """What was dropped, in the order of the corpus."""
    yield from read_structs(filtered.path(DROPPED_FILE), DroppedLine)


def dropped_line(filtered: Artifact, doc_id: str) -> DroppedLine | None:
    """What a filtered corpus says of a document that it dropped; None if it dropped no such one."""
    return next((line for line in read_dropped(filtered) if line.doc_id == doc_id), None)
