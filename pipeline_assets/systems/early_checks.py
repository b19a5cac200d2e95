"""Checks, before a build, of files and libraries that its later steps need."""

from collections.abc import Iterable
from pathlib import Path

from pipeline_assets.build.target import Target
from pipeline_assets.corpus.decontamination.recipe import DecontaminationSection
from pipeline_assets.corpus.dedup.recipe import NearRecipe
from pipeline_assets.corpus.readers.source_folder import list_files
from pipeline_assets.corpus.stores.object_source import source_path, source_url


def is_to_be_built(targets: Iterable[Target], kind_name: str, root: Path) -> bool:
    """Return True if a target of this kind is missing or stale."""
    return not all(target.matches_recipe(root) for target in targets if target.kind.name == kind_name)


def check_evaluation_sets(
    section: DecontaminationSection | None, targets: Iterable[Target], kind_name: str, root: Path
) -> None:
    """Read the first items of local evaluation sets if a build needs them.

    A build needs them if a target of the kind `kind_name` is missing or stale. Raise InputError if a file cannot be
    read, and UsageError if a file is missing or lacks a column.
    """
    from pipeline_assets.corpus.decontamination.evaluation_items import check_first_items

    if section is None or not is_to_be_built(targets, kind_name, root):
        return
    for evaluation in section.evaluation:
        folder = source_path(evaluation.path)
        if source_url(folder) is None:
            check_first_items(list_files(root / folder, evaluation.files), evaluation)


def check_near_search(
    near: NearRecipe | None, section_name: str, targets: Iterable[Target], kind_name: str, root: Path
) -> None:
    """Raise UsageError if a build needs faiss, which is not installed.

    A build needs it if a target of the kind `kind_name` is missing or stale. The error names the recipe section of
    `near`, `section_name`.
    """
    if near is not None and near.faiss is not None and is_to_be_built(targets, kind_name, root):
        from pipeline_assets.corpus.dedup.neighbours import load_faiss

        load_faiss(f"{section_name}.near.faiss")
