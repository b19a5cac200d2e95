"""The one road to a sealed artifact: it is built if it is not there as asked, its manifest is copied for git, its
checks are asked. Assets, commands and rebuilds take it; they differ only in who shows what came of it.
"""

import logging
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pipeline_assets.corpus.recipes.run import Run
from pipeline_assets.corpus.spine.artifact import Artifact, CheckResult, copy_manifest, read_manifest
from pipeline_assets.corpus.spine.errors import DeniedError, InputError, RetryableError
from pipeline_assets.corpus.spine.lineage import COPIES
from pipeline_assets.corpus.spine.lock import BuilderBusy
from pipeline_assets.corpus.spine.manifest import Manifest
from pipeline_assets.corpus.spine.target import Target
from pipeline_assets.corpus.spine.usage import named_step
from pipeline_assets.systems.registry import KINDS

logger = logging.getLogger("corpusmill")
_POLL_S = 1.0


@dataclass(frozen=True)
class Built:
    """What a build came to: it may have been sealed as asked, so that nothing was built; and what its checks said, as
    far as they were asked now.
    """

    artifact: Artifact
    was_current: bool
    checks: Sequence[CheckResult]


def build(target: Target, run: Run, asks_again: bool = False) -> Built:
    """The artifact, and what its checks say of it; those that were asked of what is there already are asked again on
    demand. Raises InputError: as its kind's `build`. A check that holds it back raises nothing: see
    `Target.refuse_failed`.
    """
    kind, was_current = KINDS[target.kind], target.is_sealed(run.root)
    artifact = build_alone(target, run)
    if target.export_as is not None:
        copy_manifest(artifact, run.root / COPIES / target.export_as)
    if kind.beside is not None:
        kind.beside(artifact)
    checks = [] if target.is_settled(run.root) and not asks_again else kind.ask(target, run.root)
    return Built(artifact, was_current, checks)


def build_alone(target: Target, run: Run) -> Artifact:
    """The artifact, no check of it asked: what a rebuild holds against the sealed one.

    Two runs may want one upstream artifact: the second waits, then finds it there. Raises InputError: as its kind's
    `build`.
    """
    deadline = time.monotonic() + run.wait_s
    has_spoken = False
    while True:
        try:
            return KINDS[target.kind].build(target, run)
        except BuilderBusy as busy:
            if time.monotonic() >= deadline:
                raise
            if not has_spoken:
                logger.info("waiting: %s: %s", busy.where, busy.what)
                has_spoken = True
            time.sleep(_POLL_S)


@dataclass(frozen=True)
class Outcome:
    """What became of one target. No manifest is there where it waits for others, or failed; nothing was built where it
    was current. Checks are what they said, if they were asked; the failure is why it failed, or a check that holds it
    back.
    """

    target: Target
    manifest: Manifest | None
    was_current: bool
    checks: tuple[CheckResult, ...] = ()
    failure: InputError | None = None


def run_targets(asked: Sequence[Target], run: Run, *, goes_on: bool = False) -> Iterator[Outcome]:
    """Each of some targets of a recipe, upstream first; those that are current are not built, unless a crash came
    before their checks. One that a check holds back is not built again: it is asked again.

    Args:
        goes_on: after a failure with what isn't made from what failed.
    Raises:
        InputError: as a build raised it, or a check holds back what it made. Where it `goes_on`: a RetryableError
            that every target would meet, or the only failure if no target is left after it.
    """
    root = run.root.absolute()  # so that what is said of a file holds in any folder
    run = replace(run, root=root)
    failed: set[str] = set()  # roles
    for number, target in enumerate(asked):
        if _is_made_from(failed, target):
            continue
        if _waits(target, asked, root):
            yield Outcome(target, None, False)
            continue
        was_current, is_settled = target.is_sealed(root), target.is_settled(root)
        try:
            if not is_settled:
                with named_step(number + 1, len(asked)):
                    build(target, run)
            target.refuse_failed(root)
        except InputError as failure:
            failed.add(target.role)
            left = [one for one in asked[number + 1 :] if not _is_made_from(failed, one)]
            is_last = all(one.is_settled(root) for one in left)
            is_of_all = isinstance(failure, RetryableError) and not isinstance(failure, DeniedError)
            if not goes_on or is_of_all or (is_last and len(failed) == 1):
                raise
            yield Outcome(target, None, was_current, failure=failure)
        else:
            manifest = read_manifest(root / target.folder)
            checks = () if is_settled or manifest is None else target.results(root, manifest)
            yield Outcome(target, manifest, was_current, checks)


def _is_made_from(roles: Collection[str], target: Target) -> bool:
    return any(upstream.role in roles or _is_made_from(roles, upstream) for upstream in target.upstream)


def _waits(target: Target, asked: Collection[Target], root: Path) -> bool:
    """Whether an artifact of all partitions is made from one that is neither asked for now nor there."""
    roles = {one.role for one in asked}
    return target.partition is None and any(
        one.role not in roles and not one.is_given and not one.is_sealed(root) for one in target.upstream
    )
