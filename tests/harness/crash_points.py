"""Kill of a process before its n-th disk step.

A step is a call of `durable.failpoint`. A log file that each process appends to counts the steps of all processes, so
forked and spawned workers count alike.
"""

import multiprocessing
import os
import signal
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from unittest import mock

from forked_workers import forked_here

from pipeline_assets.spine import durable
from pipeline_assets.spine.shard import Shard
from pipeline_assets.spine.stage import Window, Work
from pipeline_assets.spine.staging import Receipt, StagingView

Action = Callable[[], object]
_RECORD_BYTES = 8


class Victim(StrEnum):
    """Processes whose steps are counted, and that die at the last one."""

    ALL = "all processes"
    PARENT = "the parent"
    WORKER = "a worker"


@dataclass(frozen=True)
class Death:
    """Picklable failpoint that kills before the `at`-th step, counted from 1."""

    at: int
    victim: Victim
    log: Path

    def __call__(self, kind: durable.Operation, path: Path) -> None:
        is_worker = multiprocessing.parent_process() is not None
        if self.victim is not Victim.ALL and is_worker is not (self.victim is Victim.WORKER):
            return
        if self._count(kind) != self.at:
            return
        if self.victim is Victim.ALL:
            os.killpg(0, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
        signal.pause()  # until the signal arrives

    def _count(self, kind: durable.Operation) -> int:
        """Append a record to the log; return the step's number, from the log's size."""
        descriptor = os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(descriptor, kind.ljust(_RECORD_BYTES).encode())
            return os.lseek(descriptor, 0, os.SEEK_CUR) // _RECORD_BYTES
        finally:
            os.close(descriptor)

    def kind_of_step(self) -> str | None:
        """Return the kind of the step before the kill; None if fewer steps ran."""
        records = self.log.read_bytes() if self.log.exists() else b""
        record = records[(self.at - 1) * _RECORD_BYTES : self.at * _RECORD_BYTES]
        return record.decode().strip() or None


def kill_at(at: int, action: Action, victim: Victim = Victim.ALL) -> str | None:
    """Run an action in a forked session and kill it before a step.

    Return the kind of that step; None if the action ended first.

    Raises:
        AssertionError: The action failed, or died otherwise.
    """
    with tempfile.TemporaryDirectory() as folder:
        death = Death(at, victim, Path(folder, "steps"))
        status = _run_in_session(death, action)
        kind = death.kind_of_step()
        expected = -signal.SIGKILL if kind and victim is not Victim.WORKER else 0
        assert status == expected, f"killed before step {at}, {kind}: exit status {status}; a traceback may be above"
        return kind


def count_steps(action: Action, victim: Victim = Victim.ALL) -> int:
    """Count the steps of the victim without a kill."""
    with tempfile.TemporaryDirectory() as folder:
        life = Death(0, victim, Path(folder, "steps"))
        assert _run_in_session(life, action) == 0, "a traceback may be above"
        return life.log.stat().st_size // _RECORD_BYTES if life.log.exists() else 0


def _run_in_session(death: Death, action: Action) -> int:
    """Return the exit status, or minus the signal that killed the process."""
    pid = os.fork()
    if pid == 0:
        os.setsid()
        durable.failpoint = death
        try:
            with forked_here():  # workers have the failpoint too
                action()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def list_steps(action: Action) -> list[tuple[durable.Operation, Path]]:
    """List the steps of an action run in this process: kind and path."""
    steps: list[tuple[durable.Operation, Path]] = []
    with mock.patch.object(durable, "failpoint", lambda kind, path: steps.append((kind, path))):
        action()
    return steps


def armed(
    shard: Shard,
    window: Window,
    folder: StagingView,
    work: Work[Shard],
    failpoint: Callable[[durable.Operation, Path], None],
) -> Receipt:
    """Run `work` with this failpoint in a worker that inherits none."""
    durable.failpoint = failpoint
    return work(shard, window, folder)
