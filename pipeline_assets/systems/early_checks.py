"""Checks of files and libraries, before a build whose later steps need them."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from pipeline_assets.build.build_target import raise_if_occupied
from pipeline_assets.build.recipe import Recipe
from pipeline_assets.build.run import Run
from pipeline_assets.build.run_targets import lacks_input
from pipeline_assets.build.target import Target
from pipeline_assets.corpus.decontamination.recipe import DECONTAMINATION_STAGE, DecontaminationSection
from pipeline_assets.corpus.dedup.decision import DEDUP_STAGE, SIGNATURES_STAGE
from pipeline_assets.corpus.dedup.recipe import DedupRecipe, NearRecipe
from pipeline_assets.corpus.normalize import sources as source_kinds
from pipeline_assets.corpus.normalize.stage import NORMALIZE_STAGE
from pipeline_assets.corpus.readers.source_folder import SourceFolder, list_files
from pipeline_assets.corpus.readers.stackexchange.archive import is_archive, require_py7zr
from pipeline_assets.corpus.readers.whole_files import extractor_versions
from pipeline_assets.corpus.scoring.recipe import SCORES_STAGE, require_gpu, require_torch
from pipeline_assets.corpus.stores.object_source import source_path, source_url
from pipeline_assets.corpus.stores.object_store import ObjectStore
from pipeline_assets.spine.artifact import open_artifact, read_manifest, try_read_manifest
from pipeline_assets.spine.errors import RecipeKey, UsageError, combine_errors
from pipeline_assets.spine.manifest import StageVersion

# Recipe keys that name artifacts of other recipes, by kind.
_KEYS = {"normalized": "sources", "signatures": "seen", "candidate_pools": "sealed_pools", "token_shards": "mixture"}


def check_before_build(recipe: Recipe, targets: Sequence[Target], run: Run) -> None:
    """Raise InputError if the build of a target is known to fail later.

    `targets` belong to the recipe. Targets that would be skipped because they lack an input are not checked.
    """
    to_build = [target for target in targets if not lacks_input(target, targets, run.root)]
    if not run.replace:
        check_occupied(to_build, run.root)
    recipe.check_prerequisites(run.root, to_build)
    if run.remote_launcher is None:
        check_scorer(to_build, run.root)


def is_to_be_built(targets: Iterable[Target], stage: StageVersion, root: Path) -> bool:
    """Check whether a target of this stage is missing or stale."""
    return not all(target.matches_recipe(root) for target in targets if target.stage.name == stage.name)


def check_occupied(targets: Iterable[Target], root: Path) -> None:
    """Raise UsageError if a build would replace an artifact, which needs `--replace`.

    The build would replace an artifact whose settings differ from the target's. If only an input changed, no error is
    raised, because the input may be rebuilt with equal content. Pins and lists of members, which builds may replace,
    are not checked.
    """
    for target in targets:
        sealed = try_read_manifest(root / target.folder) if target.upstream and not target.members else None
        if sealed is not None and not target.matches_settings(sealed.identity):
            raise_if_occupied(target, root, replace=False)


def check_inputs(targets: Sequence[Target], root: Path, dedup: DedupRecipe | None = None) -> None:
    """Check the inputs of builds: object stores and other recipes' artifacts.

    Raises:
        UsageError: Artifacts are missing (all are listed), signatures have other settings than `dedup`, or obstore is
            not installed.
    """
    built = {target.folder for target in targets}  # a recipe may name its own artifact
    needed = {
        upstream.folder: upstream.kind
        for target in targets
        if any(upstream.is_external for upstream in target.upstream) and not target.matches_recipe(root)
        for upstream in target.upstream
        if upstream.is_external and upstream.folder not in built
    }
    missing = [(kind, root / folder) for folder, kind in needed.items() if read_manifest(root / folder) is None]
    if missing:
        fix = "build it first, or correct the recipe"
        keys = [(RecipeKey(_KEYS[kind.short_name]), folder) for kind, folder in missing]
        raise combine_errors([UsageError(f"{folder}: no artifact is sealed here", key, fix) for key, folder in keys])
    signatures = [folder for folder, kind in needed.items() if kind.stage.name == SIGNATURES_STAGE.name]
    if dedup is not None and signatures:
        from pipeline_assets.corpus.dedup.signature_store import open_stores

        open_stores({str(folder): open_artifact(root / folder) for folder in signatures}, dedup)
    _check_stores(targets, root)


def _check_stores(targets: Iterable[Target], root: Path) -> None:
    for target in targets:
        pinned = target.external_inputs
        url = source_url(pinned.path) if isinstance(pinned, SourceFolder) else None
        if url is not None and not target.matches_recipe(root):
            ObjectStore.open(url)


def check_packages(sources: Iterable[source_kinds.Source], targets: Iterable[Target], root: Path) -> None:
    """Raise InputError if a build lacks a package that reads files of its sources."""
    files_by_name = {source.source: source for source in sources if isinstance(source, source_kinds.FileSource)}
    for target in targets:
        source = files_by_name.get(str(target.partition))
        if source is None or target.stage.name != NORMALIZE_STAGE.name or target.matches_recipe(root):
            continue
        folder = source_kinds.to_source_folder(source).resolve_path(root)
        files = folder.files() if source_url(folder.path) is None and folder.path.is_dir() else ()
        if isinstance(source, source_kinds.StackExchangeSource):
            for archive in filter(is_archive, (file.path for file in files)):
                require_py7zr(archive)
        elif isinstance(source, source_kinds.LocalSource):
            names = (file.name for file in files)
            extractor_versions(source.detect_format(name) for name in names if not source.is_license_file(name))


def check_scorer(targets: Iterable[Target], root: Path) -> None:
    """Raise UsageError if scoring needs PyTorch or a GPU, which this machine lacks."""
    devices = {
        target.recipe["scoring"]["device"]
        for target in targets
        if target.stage.name == SCORES_STAGE.name and not target.matches_recipe(root)
    }
    if "cuda" in devices:
        require_gpu()
    elif devices:
        require_torch()


def check_evaluation_sets(section: DecontaminationSection | None, targets: Iterable[Target], root: Path) -> None:
    """Read the first items of local evaluation sets if a decontamination needs them.

    Raise InputError if a file cannot be read, and UsageError if a file is missing or lacks a column.
    """
    from pipeline_assets.corpus.decontamination.evaluation_items import check_item_columns

    if section is None or not is_to_be_built(targets, DECONTAMINATION_STAGE, root):
        return
    for evaluation in section.evaluation:
        folder = source_path(evaluation.path)
        if source_url(folder) is None:
            check_item_columns(list_files(root / folder, evaluation.files), evaluation)


def check_faiss_installed(near: NearRecipe | None, section_name: str, targets: Iterable[Target], root: Path) -> None:
    """Raise UsageError if a deduplication needs faiss, which is not installed.

    The error names `section_name`, the recipe section that contains `near`.
    """
    if near is not None and near.faiss is not None and is_to_be_built(targets, DEDUP_STAGE, root):
        from pipeline_assets.corpus.dedup.neighbours import load_faiss

        load_faiss(f"{section_name}.near.faiss")
