"""Kill of a process before its n-th disk step, and the list of its steps.

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
from pipeline_assets.spine.stage import Shard, Window, Work
from pipeline_assets.spine.staging import Receipt, StagingView

Action = Callable[[], object]
_RECORD_BYTES = 8


class Victim(StrEnum):
    """Whose steps are counted, and who dies at the last of them."""

    ALL = "all processes"
    PARENT = "the parent"
    WORKER = "a worker"


@dataclass(frozen=True)
class Death:
    """A failpoint that kills before the `at`-th step, counted from 1; it can be sent to a spawned worker."""

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
        signal.pause()  # the signal is on its way

    def _count(self, kind: durable.Operation) -> int:
        """The step's number: where its record ends in the log."""
        descriptor = os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(descriptor, kind.ljust(_RECORD_BYTES).encode())
            return os.lseek(descriptor, 0, os.SEEK_CUR) // _RECORD_BYTES
        finally:
            os.close(descriptor)

    def kind_of_step(self) -> str | None:
        """Of the step that it killed before; None if there were fewer."""
        records = self.log.read_bytes() if self.log.exists() else b""
        record = records[(self.at - 1) * _RECORD_BYTES : self.at * _RECORD_BYTES]
        return record.decode().strip() or None


def killed_at(at: int, action: Action, victim: Victim = Victim.ALL) -> str | None:
    """The kind of the step before which `action`, run in a forked session of its own, was killed; None if it ended.

    Raises:
        AssertionError: it ended with an error, or by another death.
    """
    with tempfile.TemporaryDirectory() as folder:
        death = Death(at, victim, Path(folder, "steps"))
        status = _in_a_session_of_its_own(death, action)
        kind = death.kind_of_step()
        expected = -signal.SIGKILL if kind and victim is not Victim.WORKER else 0
        assert status == expected, f"killed before step {at}, {kind}: exit status {status}; a traceback may be above"
        return kind


def count_steps(action: Action, victim: Victim = Victim.ALL) -> int:
    """How many steps the victim takes when nobody kills it."""
    with tempfile.TemporaryDirectory() as folder:
        life = Death(0, victim, Path(folder, "steps"))
        assert _in_a_session_of_its_own(life, action) == 0, "a traceback may be above"
        return life.log.stat().st_size // _RECORD_BYTES if life.log.exists() else 0


def _in_a_session_of_its_own(death: Death, action: Action) -> int:
    """Exit status, or minus the signal that killed it."""
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


def steps_of(action: Action) -> list[tuple[durable.Operation, Path]]:
    """The steps of an action, run here, by this process alone: kind, and the file or folder."""
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
    """`work` in a worker that inherits no failpoint: it gets this one."""
    durable.failpoint = failpoint
    return work(shard, window, folder)
