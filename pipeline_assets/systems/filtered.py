"""Filtered corpora of one source each, for stage A and stage 2."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipeline_assets.build.builders import Job, file_builder
from pipeline_assets.build.checks import FILES_CHECK, LEDGER_CHECK
from pipeline_assets.build.rows.derived import FilteredRows
from pipeline_assets.build.target import Kind, Target
from pipeline_assets.corpus.filters.pinned_files import FilterFiles
from pipeline_assets.corpus.filters.recipe import FilterRecipe, keeps_all_documents, resolve_filters
from pipeline_assets.corpus.filters.verdict import FILTER_STAGE, build_filters
from pipeline_assets.corpus.normalize.sources import Source
from pipeline_assets.spine.build_result import BuildResult


def filter_arguments(filters: FilterRecipe, refused_licences: Sequence[str] = ()) -> dict[str, Any]:
    """Return arguments for `Kind.target`: filters, refused licences and filter files."""
    content = {"filters": filters.content(), "refuse_licences": list(refused_licences)}
    return {"content": content, "external_inputs": FilterFiles.from_files(filters.pinned_files())}


def check_filters(sources: Iterable[Source], targets: Iterable[Target], root: Path) -> None:
    """Load the filters of corpora that are still to be built, to find errors early.

    Raises:
        UsageError: A language detector is not installed or lacks a language, or a classifier lacks the label of
            `score`.
        InputError: A file of the filters cannot be read, is not the pinned one, or has no valid content.
    """
    filters = {source.source: source.filters for source in sources}
    for target in targets:
        if target.stage.name == FILTER_STAGE.name and not target.matches_recipe(root):
            recipe = filters[str(target.partition)]
            files = FilterFiles.from_files(recipe.pinned_files())
            if recipe.language is not None:
                recipe.language.check_codes()
            if files is not None:
                build_filters(resolve_filters(recipe.content(), files, root))


def _filter(job: Job) -> BuildResult:
    from pipeline_assets.corpus.filters.filter_corpus import filter_corpus  # loads compiled code

    [normalized], refused = job.upstream, frozenset(job.recipe["refuse_licences"])
    files, root = job.target.external_inputs, job.run.root
    assert files is None or isinstance(files, FilterFiles)
    provenance = files.provenance(root) if files else {}  # before the build, so that a later change is found
    recipe = resolve_filters(job.recipe["filters"], files, root)
    result = filter_corpus(job.staging, normalized, recipe, refused, job.run.settings)
    return replace(result, provenance={**result.provenance, **provenance})


FILTERED = Kind(
    "stage_a/filtered",
    FILTER_STAGE,
    file_builder(_filter),
    "Documents of a source that its filters keep; each dropped one is listed with its reason and measured values.",
    formats=frozenset({"jsonl"}),
    external_inputs=FilterFiles.from_manifest,
    row_store_class=FilteredRows,
    keeps_all_documents=lambda recipe: keeps_all_documents(
        FilterRecipe.from_content(recipe["filters"]), recipe["refuse_licences"]
    ),
    checks=(FILES_CHECK, LEDGER_CHECK),
)
