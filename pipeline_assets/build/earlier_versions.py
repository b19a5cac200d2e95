"""Files and finished tasks of an artifact's earlier version, reused in a build."""

import contextlib
from dataclasses import replace
from pathlib import Path

from pipeline_assets.build.run import FolderFinder, Run
from pipeline_assets.build.target import Target
from pipeline_assets.spine.artifact import open_artifact, try_read_manifest
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.kept_work import KeptWork
from pipeline_assets.spine.reuse import link_content
from pipeline_assets.spine.staging import StagingDir


def link_earlier_files(
    staging: StagingDir, target: Target, root: Path, find_folder: FolderFinder
) -> BuildResult | None:
    """Link the files of the previous recipe's artifact; return them as a build result.

    Return None if the previous recipe's artifact is missing or damaged, or does not match `target`. `find_folder` maps
    a role to the folder of the previous recipe's artifact.
    """
    try:
        artifact = open_artifact(root / find_folder(target.role))
    except (LookupError, InputError):
        return None
    if target.staleness_reason(root, artifact.manifest) is not None:
        return None
    linked = link_content(staging, artifact)
    return linked and replace(linked, provenance={**artifact.manifest.provenance, **linked.provenance})


def open_kept_work(target: Target, run: Run) -> KeptWork:
    """Open the finished tasks that were kept from the artifact's earlier version.

    The earlier version is the artifact with the target's role in the previous recipe; if there is none, the artifact in
    the target's folder. The result is empty if the earlier version is missing or has a different stage version.
    """
    folder = target.folder
    if run.find_previous_folder is not None:
        with contextlib.suppress(LookupError):
            folder = run.find_previous_folder(target.role)
    sealed = try_read_manifest(run.root / folder)
    is_same_stage = sealed is not None and sealed.identity.stage == target.stage
    return KeptWork(run.root / folder if is_same_stage else None)
