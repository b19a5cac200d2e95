"""Builds of several targets of a recipe, upstream first."""

import contextlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pipeline_assets.build.drive import build, copy_manifests
from pipeline_assets.build.run import Run
from pipeline_assets.build.target import Target
from pipeline_assets.spine.areas import MANIFEST_COPIES_FOLDER
from pipeline_assets.spine.artifact import Artifact, CheckResult, read_manifest
from pipeline_assets.spine.bars import label_bars
from pipeline_assets.spine.errors import DeniedError, InputError, RetryableError
from pipeline_assets.spine.manifest import Manifest


@dataclass(frozen=True)
class TargetOutcome:
    """Outcome of one target."""

    target: Target
    manifest: Manifest | None  # None if the target failed, or was skipped because it lacks an input
    was_current: bool  # the artifact already matched its recipe, so nothing was built
    checks: tuple[CheckResult, ...] = ()  # empty if the target failed, was up to date or was skipped
    failure: InputError | None = None  # of the build or of a blocking check


def run_targets(targets: Sequence[Target], run: Run, *, keep_going: bool = False) -> Iterator[TargetOutcome]:
    """Build targets in order, and yield the outcome of each.

    `targets` must be sorted, upstream first. Targets that are up to date are not built; after a failed check, only the
    checks run again. A target that depends on a failed target is skipped, without an outcome.

    Raise InputError if a build or a blocking check failed. With `keep_going`, failures are yielded and the other
    targets are still built. An error is raised anyway if it is a RetryableError (except DeniedError), or if it is the
    only failure and nothing is left to build.
    """
    root = run.root.absolute()  # so that paths in messages are valid in any working directory
    run = replace(run, root=root)
    failed: set[str] = set()  # roles
    for number, target in enumerate(targets):
        if _depends_on_any(target, failed):
            continue
        was_current = target.matches_recipe(root)
        try:
            outcome = build_and_check(target, targets, run, number + 1)
        except InputError as failure:
            failed.add(target.role)
            remaining = [other for other in targets[number + 1 :] if not _depends_on_any(other, failed)]
            is_last = all(other.is_up_to_date(root) for other in remaining)
            affects_all = isinstance(failure, RetryableError) and not isinstance(failure, DeniedError)
            if not keep_going or affects_all or (is_last and len(failed) == 1):
                raise
            yield TargetOutcome(target, None, was_current, failure=failure)
        else:
            yield outcome


def build_and_check(target: Target, targets: Sequence[Target], run: Run, position: int) -> TargetOutcome:
    """Build and check a target, unless it is up to date; return its outcome.

    A target without a partition is skipped if it lacks an input (see `lacks_input`). Progress bars show `position`,
    which counts from 1. Raise InputError if the build or a blocking check failed.
    """
    root = run.root
    if lacks_input(target, targets, root):
        return TargetOutcome(target, None, False)
    if target.is_up_to_date(root):
        restore_manifest_copies(target, root)
        return TargetOutcome(target, read_manifest(root / target.folder), True)
    with label_bars(position, len(targets)):
        report = build(target, run)
    target.raise_if_failed(root)
    failed = next((check for check in report.checks if not check.passed), None)
    if failed is not None and not target.is_up_to_date(root):  # a file could not be read, so no result is stored
        fix = "run the same command again; if the error persists, check the disk"
        raise RetryableError(f"{failed.name} failed: {failed.because}", root / target.folder, fix)
    manifest = read_manifest(root / target.folder)
    return TargetOutcome(target, manifest, report.was_current, target.check_results(root, manifest) if manifest else ())


def restore_manifest_copies(target: Target, root: Path) -> None:
    """Copy a target's manifest if its copy is missing, as after a pull or a restore."""
    if target.copy_name is None or (root / MANIFEST_COPIES_FOLDER / target.copy_name).exists():
        return
    if (manifest := read_manifest(root / target.folder)) is not None:
        with contextlib.suppress(OSError):  # the data root may be read-only
            copy_manifests(target, Artifact(root / target.folder, manifest), root)


def _depends_on_any(target: Target, roles: Collection[str]) -> bool:
    return any(upstream.role in roles or _depends_on_any(upstream, roles) for upstream in target.upstream)


def lacks_input(target: Target, targets: Collection[Target], root: Path) -> bool:
    """Check whether a target without a partition lacks an input that no build makes.

    An input is present if it is external, or if it is sealed and matches its recipe, even if a check failed. A build
    makes any other input that is in `targets` and does not lack an input itself.
    """
    roles = {other.role for other in targets}
    return target.partition is None and any(
        not upstream.is_external
        and (upstream.role not in roles or lacks_input(upstream, targets, root))
        and not upstream.matches_recipe(root)
        for upstream in target.upstream
    )
