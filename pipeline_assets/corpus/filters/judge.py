"""The filters of one recipe: over batches of documents, and over one document to say why."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from pipeline_assets.corpus.filters.c4 import C4Filter
from pipeline_assets.corpus.filters.column_rules import ColumnFilter
from pipeline_assets.corpus.filters.language_filter import LanguageFilter
from pipeline_assets.corpus.filters.masking import Masking
from pipeline_assets.corpus.filters.recipe import FilterRecipe
from pipeline_assets.corpus.filters.thresholds import ThresholdFilter
from pipeline_assets.corpus.filters.verdict import Candidate, Filter, Verdict
from pipeline_assets.corpus.filters.wikipedia import WikipediaFilter


@functools.lru_cache(maxsize=8)
def filters_of(recipe: FilterRecipe) -> tuple[Filter, ...]:
    """The recipe's filters but for `windows`, in the order in which they are asked; tables are built once.

    Raises:
        UsageError: what tells languages is not installed.
    """
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


def apply_filters(candidates: Sequence[Candidate], recipe: FilterRecipe) -> None:
    """Drops and changes documents as the recipe says. What an earlier filter drops, a later one doesn't see.

    Raises:
        UsageError: a rule over a column that a document doesn't have, or can't be compared; as `filters_of`.
    """
    for step in filters_of(recipe):
        step.apply([candidate for candidate in candidates if candidate.failure is None])


def judge(text: str, meta: Mapping[str, Any], recipe: FilterRecipe) -> Verdict:
    """What becomes of one document, and all that the filters see in it. The same verdict as in any batch. Of other
    documents it knows nothing: what `windows` drops is not seen here.

    Raises:
        UsageError: as `apply_filters`.
    """
    candidate = Candidate(text.encode("utf-8"), meta)
    seen = [measurement for step in filters_of(recipe) for measurement in step.measure(candidate)]
    reason = next((measurement.reason for measurement in seen if measurement.is_failed), None)
    return Verdict(reason, tuple(seen), candidate.text.decode("utf-8"), candidate.changes)
