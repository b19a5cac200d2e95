"""Targets of a recipe built one after the other, upstream first, with what became of each."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pipeline_assets.build.drive import build
from pipeline_assets.build.run import Run
from pipeline_assets.build.target import Target
from pipeline_assets.spine.artifact import CheckResult, read_manifest
from pipeline_assets.spine.bars import named_step
from pipeline_assets.spine.errors import DeniedError, InputError, RetryableError
from pipeline_assets.spine.manifest import Manifest


@dataclass(frozen=True)
class TargetOutcome:
    """What became of one target. No manifest is there where it waits for others, or failed; nothing was built where it
    was current. Checks are what they said, if they were asked; the failure is why it failed, or a check that holds it
    back.
    """

    target: Target
    manifest: Manifest | None
    was_current: bool
    checks: tuple[CheckResult, ...] = ()
    failure: InputError | None = None


def run_targets(asked: Sequence[Target], run: Run, *, keep_going: bool = False) -> Iterator[TargetOutcome]:
    """Each of some targets of a recipe, upstream first; those that are current are not built, unless a crash came
    before their checks. One that a check holds back is not built again: it is asked again.

    Args:
        keep_going: after a failure with what isn't made from what failed.
    Raises:
        InputError: as a build raised it, or a check holds back what it made. Where it `keep_going`: a RetryableError
            that every target would meet, or the only failure if no target is left after it.
    """
    root = run.root.absolute()  # so that what is said of a file holds in any folder
    run = replace(run, root=root)
    failed: set[str] = set()  # roles
    for number, target in enumerate(asked):
        if _depends_on(failed, target):
            continue
        if _is_waiting(target, asked, root):
            yield TargetOutcome(target, None, False)
            continue
        was_current, is_settled = target.matches_recipe(root), target.is_up_to_date(root)
        try:
            if not is_settled:
                with named_step(number + 1, len(asked)):
                    build(target, run)
            target.raise_if_failed(root)
        except InputError as failure:
            failed.add(target.role)
            left = [one for one in asked[number + 1 :] if not _depends_on(failed, one)]
            is_last = all(one.is_up_to_date(root) for one in left)
            is_of_all = isinstance(failure, RetryableError) and not isinstance(failure, DeniedError)
            if not keep_going or is_of_all or (is_last and len(failed) == 1):
                raise
            yield TargetOutcome(target, None, was_current, failure=failure)
        else:
            manifest = read_manifest(root / target.folder)
            checks = () if is_settled or manifest is None else target.results(root, manifest)
            yield TargetOutcome(target, manifest, was_current, checks)


def _depends_on(roles: Collection[str], target: Target) -> bool:
    return any(upstream.role in roles or _depends_on(roles, upstream) for upstream in target.upstream)


def _is_waiting(target: Target, asked: Collection[Target], root: Path) -> bool:
    """Whether an artifact of all partitions is made from one that is neither asked for now nor there."""
    roles = {one.role for one in asked}
    return target.partition is None and any(
        one.role not in roles and not one.is_external and not one.matches_recipe(root) for one in target.upstream
    )
