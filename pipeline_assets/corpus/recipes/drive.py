"""The one road to a sealed artifact: it is built if it is not there as asked, its manifest is copied for git, its
checks are asked. Assets, commands and rebuilds take it; they differ only in who shows what came of it.
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline_assets.corpus.recipes.kind import Check
from pipeline_assets.corpus.recipes.run import Run
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.checks import Verdict
from pipeline_assets.corpus.spine.lineage import keep_copy
from pipeline_assets.corpus.spine.lock import BuilderBusy
from pipeline_assets.corpus.spine.target import Target
from pipeline_assets.systems.registry import KINDS

logger = logging.getLogger("corpusmill")
_POLL_S = 1.0


@dataclass(frozen=True)
class Built:
    """What became of one target.

    Attributes:
        was_there: it was sealed as asked, nothing was built.
        said: by its checks, as far as they were asked now.
    """

    target: Target
    artifact: Artifact
    was_there: bool
    said: Sequence[tuple[Check, Verdict]]


def build(target: Target, run: Run, asks_again: bool = False) -> Built:
    """The artifact, and what its checks say of it.

    Args:
        asks_again: whether checks that were asked of what is there are asked again.
    Raises:
        InputError: as its kind's `build`. A check that holds it back raises nothing: see `Target.refuse_failed`.
    """
    kind, was_there = KINDS[target.kind], target.is_sealed(run.root)
    artifact = _built_in_turn(target, run)
    if target.export_as is not None:
        keep_copy(run.root, artifact, target.export_as)
    if kind.beside is not None:
        kind.beside(artifact)
    said = [] if target.is_settled(run.root) and not asks_again else kind.ask(target, run.root)
    return Built(target, artifact, was_there, said)


def build_again(target: Target, run: Run) -> Artifact:
    """The artifact alone, in a place of its own: what a rebuild holds against the sealed one, whose checks were asked.

    Raises:
        InputError: as its kind's `build`.
    """
    return _built_in_turn(target, run)


def _built_in_turn(target: Target, run: Run) -> Artifact:
    """Two runs may want one upstream artifact: the second waits, then finds it there."""
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
