"""Application of all filters in order, with the records of dropped documents."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from pipeline_assets.corpus.filters.filter import Candidate, Filter, MeasuredValue, Measurement
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, read_structs
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.manifest import StageVersion

if TYPE_CHECKING:
    from pipeline_assets.corpus.filters.recipe import FilterRecipe

FILTER_STAGE = StageVersion("filter", 3)
DROPPED_FILE = f"dropped{SUFFIX}"


@dataclass(frozen=True)
class FilterVerdict:
    """Verdict of all filters, except `windows` and `python`, on a document."""

    reason: str | None  # reason code of the first rule that the document fails; None if it fails none
    measurements: tuple[Measurement, ...]  # of all filters in order, also after the one that drops the document
    text: str  # after all changes
    changes: Mapping[str, int]  # counts of changes by name, see `Candidate`


@functools.lru_cache(maxsize=8)
def build_filters(recipe: "FilterRecipe") -> tuple[Filter, ...]:
    """Return the filters, except `windows` and `python`, in order of application."""
    # Filters load compiled code, which readers of verdicts do not need.
    from pipeline_assets.corpus.filters.blocklist import BlocklistFilter
    from pipeline_assets.corpus.filters.c4 import C4Filter
    from pipeline_assets.corpus.filters.column_filter import ColumnFilter
    from pipeline_assets.corpus.filters.fineweb import FineWebFilter
    from pipeline_assets.corpus.filters.language import LanguageFilter
    from pipeline_assets.corpus.filters.masking import MaskingFilter
    from pipeline_assets.corpus.filters.score import ScoreFilter
    from pipeline_assets.corpus.filters.thresholds import ThresholdFilter
    from pipeline_assets.corpus.filters.wikipedia import WikipediaFilter

    sections: tuple[tuple[Callable[[Any], Filter], object], ...] = (
        (ColumnFilter, recipe.rules),
        (BlocklistFilter, recipe.blocklist),
        (WikipediaFilter, recipe.wikipedia),
        (ThresholdFilter, recipe),
        (LanguageFilter, recipe.language),  # takes ten times as long as the filters before it together
        (C4Filter, recipe.c4),
        (FineWebFilter, recipe.fineweb_quality),
        (ScoreFilter, recipe.score),
        (MaskingFilter, recipe.masking),
    )
    return tuple(build(section) for build, section in sections if section is not None)


def apply_filters(candidates: Sequence[Candidate], recipe: "FilterRecipe") -> None:
    """Apply the filters of `build_filters`; dropped documents skip later filters."""
    for document_filter in build_filters(recipe):
        document_filter.apply([candidate for candidate in candidates if candidate.failure is None])


def evaluate(text: str, meta: Mapping[str, Any], recipe: "FilterRecipe") -> FilterVerdict:
    """Evaluate all filters of `build_filters` on a document.

    Raise UsageError and InputError for the reasons that `filter_corpus` names, except reasons that concern a whole
    corpus or the custom step.
    """
    candidate = Candidate(text.encode("utf-8"), meta)
    filters = build_filters(recipe)
    measurements = tuple(result for document_filter in filters for result in document_filter.measure(candidate))
    reason = next((measurement.reason for measurement in measurements if measurement.is_failed), None)
    return FilterVerdict(reason, measurements, candidate.text.decode("utf-8"), candidate.changes)


class DroppedDocument(msgspec.Struct, frozen=True):
    """Record of a dropped document, with its shard and row in the unfiltered corpus.

    `reason`, `value` and `threshold` are the reason, the value and the limit of a `Measurement`.
    """

    doc_id: str
    reason: str
    value: MeasuredValue
    threshold: MeasuredValue
    shard: str
    row: int

    def __str__(self) -> str:
        return str(Measurement(self.reason, self.value, self.threshold, is_failed=True))


def read_dropped(filtered: Artifact) -> Iterator[DroppedDocument]:
    """Yield the records of dropped documents, in the order of the corpus."""
    yield from read_structs(filtered.path(DROPPED_FILE), DroppedDocument)


def find_dropped_document(filtered: Artifact, doc_id: str) -> DroppedDocument | None:
    """Return the record of a dropped document; None if the filters did not drop it."""
    return next((line for line in read_dropped(filtered) if line.doc_id == doc_id), None)
