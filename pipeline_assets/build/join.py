"""Builds of a recipe by several processes, on any machines that share a data root.

Each process builds artifacts that no other process has locked. Locks are the only coordination: the processes are
not numbered, there is no queue, and any of them may start late or die.
"""

import contextlib
import logging
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from pipeline_assets.build.run import Run
from pipeline_assets.build.run_targets import TargetOutcome, build_and_check
from pipeline_assets.build.target import Target
from pipeline_assets.spine.builder import BuilderBusyError
from pipeline_assets.spine.lock import locked
from pipeline_assets.spine.lock_reach import raise_if_locks_are_local

logger = logging.getLogger("corpusmill")
_MIN_PAUSE_S, _MAX_PAUSE_S = 0.2, 5.0  # a new artifact is noticed soon; a hundred idle processes do not flood a server


def join_targets(targets: Sequence[Target], run: Run) -> Iterator[TargetOutcome]:
    """Build targets together with other processes, and yield the outcome of each.

    `targets` are upstream first. A target that another process has locked is skipped and tried later. A process unlocks
    a target after running its checks and copying its manifest; if the process dies before that, another process
    completes the target. Targets that another process failed to build are also tried.

    Raises:
        RetryableError: Locks in the data root exclude only processes of this machine.
        InputError: This process failed to build a target, or a blocking check failed.
    """
    run = replace(run, root=run.root.absolute(), wait_s=0)
    raise_if_locks_are_local(run.root)
    pending, logged, pause_s = {target.folder: target for target in targets}, 0.0, _MIN_PAUSE_S
    while pending:
        ready = [
            target
            for target in pending.values()
            if not any(needed.folder in pending for needed in (*target.upstream, *target.checked_against))
        ]
        random.shuffle(ready)  # so that processes rarely try the same target
        busy: list[str] = []
        for target in ready:
            try:
                is_done = target.is_up_to_date(run.root)
                path = run.root / target.folder.with_name(f"{target.folder.name}.join")
                with contextlib.nullcontext() if is_done else locked(path):
                    outcome = build_and_check(target, targets, run, len(targets) - len(pending) + 1)
            except BuilderBusyError as error:
                busy.append(f"{target.role} ({error.what})")
            else:
                del pending[target.folder]
                yield outcome
        if len(busy) < len(ready):
            pause_s = _MIN_PAUSE_S
            continue
        if time.monotonic() - logged >= run.settings.log_every_s:
            logger.info("waiting: %s%s", busy[0], f", and {len(busy) - 1:,} more" if len(busy) > 1 else "")
            logged = time.monotonic()
        time.sleep(pause_s * random.uniform(0.75, 1.25))
        pause_s = min(2 * pause_s, _MAX_PAUSE_S)
