"""Verdicts of filters on documents: in batches, of one document with all that was measured, and as lines of a file."""

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from pipeline_assets.corpus.filters.filter import Candidate, Filter, Measurement, Value
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
