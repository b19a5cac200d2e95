"""The one road to a sealed artifact: it is built if it is not there as asked, its manifest is copied for git, its
checks are asked. Assets, commands and rebuilds take it; they differ only in who shows what came of it.
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline_assets.build.run import Run
from pipeline_assets.build.target import Target
from pipeline_assets.spine.artifact import Artifact, CheckResult, copy_manifest
from pipeline_assets.spine.lineage import COPIES
from pipeline_assets.spine.lock import BuilderBusy

logger = logging.getLogger("corpusmill")
_POLL_S = 1.0


@dataclass(frozen=True)
class BuildReport:
    """What a build came to: it may have been sealed as asked, so that nothing was built; and what its checks said, as
    far as they were asked now.
    """

    artifact: Artifact
    was_current: bool
    checks: Sequence[CheckResult]


def build(target: Target, run: Run, rerun_checks: bool = False) -> BuildReport:
    """The artifact, and what its checks say of it; those that were asked of what is there already are asked again on
    demand. Raises InputError: as its kind's `build`. A check that holds it back raises nothing: see
    `Target.raise_if_failed`.
    """
    kind, was_current = target.kind, target.matches_recipe(run.root)
    artifact = build_without_checks(target, run)
    if target.export_as is not None:
        copy_manifest(artifact, run.root / COPIES / target.export_as)
    if kind.after_build is not None:
        kind.after_build(artifact)
    checks = [] if target.is_up_to_date(run.root) and not rerun_checks else kind.run_checks(target, run.root)
    return BuildReport(artifact, was_current, checks)


def build_without_checks(target: Target, run: Run) -> Artifact:
    """The artifact, no check of it asked: what a rebuild holds against the sealed one.

    Two runs may want one upstream artifact: the second waits, then finds it there. Raises InputError: as its kind's
    `build`.
    """
    deadline = time.monotonic() + run.wait_s
    has_spoken = False
    while True:
        try:
            return target.kind.build(target, run)
        except BuilderBusy as busy:
            if time.monotonic() >= deadline:
                raise
            if not has_spoken:
                logger.info("waiting: %s: %s", busy.where, busy.what)
                has_spoken = True
            time.sleep(_POLL_S)
