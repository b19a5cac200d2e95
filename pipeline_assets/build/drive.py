"""Driver that builds every artifact for assets, commands and rebuilds."""

import contextlib
import hashlib
import logging
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline_assets.build.checks import run_checks
from pipeline_assets.build.run import Run
from pipeline_assets.build.target import Target
from pipeline_assets.spine.areas import MANIFEST_COPIES_FOLDER, read_sealed_manifest
from pipeline_assets.spine.artifact import Artifact, CheckResult, copy_manifest
from pipeline_assets.spine.builder import BuilderBusyError
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.json_log import JsonFormatter
from pipeline_assets.spine.manifest import Manifest
from pipeline_assets.spine.ray_engine import check_address

logger = logging.getLogger("corpusmill")
_POLL_S = 1.0


@dataclass(frozen=True)
class BuildReport:
    """Result of a build."""

    artifact: Artifact
    was_current: bool  # the artifact already matched its recipe, perhaps after a wait, so nothing was built
    checks: Sequence[CheckResult]  # empty if the artifact was up to date and no rerun was requested


def build(target: Target, run: Run, rerun_checks: bool = False) -> BuildReport:
    """Build an artifact if necessary, copy its manifest, and run its checks.

    An artifact that matches its recipe is not rebuilt. The checks of an up-to-date artifact run only if `rerun_checks`
    is set. A failed check raises no error here; `Target.raise_if_failed` raises one.
    """
    JsonFormatter.artifact = str(target.folder)  # in the log lines of this build
    try:
        artifact, was_current = _build_or_wait(target, run)
        if not was_current:
            identity = artifact.manifest.identity
            facts = {"digest": identity.digest, "counts": identity.counts}
            logger.debug("sealed %s %s", target.role, identity.digest, extra={"facts": facts})
    finally:
        JsonFormatter.artifact = None
    copy_manifests(target, artifact, run.root)
    checks = [] if target.is_up_to_date(run.root) and not rerun_checks else run_checks(target, run.root)
    return BuildReport(artifact, was_current, checks)


def copy_manifests(target: Target, artifact: Artifact, root: Path) -> None:
    """Copy an artifact's manifest to `Target.copy_name`, and run `Kind.after_build`."""
    if target.copy_name is not None:
        copy_manifest(artifact, _copy_path(root / MANIFEST_COPIES_FOLDER / target.copy_name, artifact.manifest))
    if target.kind.after_build is not None:
        target.kind.after_build(artifact)


def _copy_path(path: Path, manifest: Manifest) -> Path:
    """Return `path`, with a hash added if another artifact's manifest uses `path`."""
    # For example, `path` is the same for the artifacts `a/b_c` and `a_b/c` of one kind.
    with contextlib.suppress(InputError, OSError):  # a missing or damaged copy is written again
        other = read_sealed_manifest(path)
        if (other.kind, other.name) != (manifest.kind, manifest.name):
            owner = hashlib.sha256(f"{manifest.kind} {manifest.name}".encode()).hexdigest()
            return path.with_stem(f"{path.stem}_{owner[:8]}")
    return path


def build_without_checks(target: Target, run: Run) -> Artifact:
    """Build an artifact, unless it matches its recipe; run no checks.

    If another process builds the artifact, wait for it; raise BuilderBusyError after `run.wait_s` seconds.
    """
    return _build_or_wait(target, run)[0]


def _build_or_wait(target: Target, run: Run) -> tuple[Artifact, bool]:
    """Build an artifact or wait for it; return it, and whether it was current."""
    if run.settings.engine == "ray" and run.settings.workers > 0:  # now, not when a stage is large enough for Ray
        check_address(os.environ.get("RAY_ADDRESS", ""))
    deadline, has_logged = time.monotonic() + run.wait_s, False
    while True:
        try:
            was_current = target.matches_recipe(run.root)
            return target.kind.build(target, run), was_current
        except BuilderBusyError as busy:
            if time.monotonic() >= deadline:
                raise
            if not has_logged:
                logger.info("waiting: %s: %s", busy.where, busy.what)
                has_logged = True
            time.sleep(_POLL_S)
