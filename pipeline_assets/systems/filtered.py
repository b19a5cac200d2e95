"""Filtered corpora of one source each, for stage A and stage 2."""

from pipeline_assets.build.builders import Job, file_builder
from pipeline_assets.build.checks import FILES, LEDGER
from pipeline_assets.build.rows.derived import FilteredRows
from pipeline_assets.build.target import Kind
from pipeline_assets.corpus.filters.recipe import FilterRecipe, keeps_all
from pipeline_assets.corpus.filters.verdict import FILTER_STAGE
from pipeline_assets.spine.build_result import BuildResult


def _filter(job: Job) -> BuildResult:
    from pipeline_assets.corpus.filters.filter_corpus import filter_corpus  # loads compiled code

    [normalized], refused = job.upstream, frozenset(job.recipe["refuse_licences"])
    recipe = FilterRecipe.from_content(job.recipe["filters"])
    return filter_corpus(job.staging, normalized, recipe, refused, job.run.settings)


FILTERED = Kind(
    "stage_a/filtered",
    FILTER_STAGE,
    file_builder(_filter),
    "Documents of a source that its filters keep; each dropped one is listed with its reason and measured values.",
    formats=frozenset({"jsonl"}),
    rows=FilteredRows,
    keeps_all=lambda recipe: keeps_all(FilterRecipe.from_content(recipe["filters"]), recipe["refuse_licences"]),
    checks=(FILES, LEDGER),
)
