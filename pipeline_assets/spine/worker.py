"""Worker processes, each as its parent sees it and from inside: it runs a stage on one shard after the other."""

import contextlib
import multiprocessing
import os
import pickle
import signal
import threading
import traceback
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Generic, Protocol

from pipeline_assets.spine.disk_errors import explain
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.stage import S, Window, Work, run_shard
from pipeline_assets.spine.staging import Receipt, StagingView
from pipeline_assets.spine.usage import resident_bytes

_STOP_TIMEOUT_S = 5.0
_BLAS_THREADS = "OPENBLAS_NUM_THREADS"


@dataclass(frozen=True)
class Job(Generic[S]):
    """One call of the stage in a worker. Its receipt is committed under `stage`; a probe's, without one, is not."""

    shard: S
    window: Window
    folder: StagingView
    stage: str | None


@dataclass(frozen=True)
class Answer:
    """What a job came to; after `is_last` the worker has gone."""

    receipt: Receipt
    is_last: bool


@dataclass(frozen=True)
class Failure:
    """An exception that was raised in another process, and where."""

    error: BaseException
    trace: str

    @classmethod
    def from_exception(cls, error: Exception) -> "Failure":
        """The exception being handled: as itself where it survives the way, else in its words; some don't."""
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            return cls(RuntimeError(f"{type(error).__name__}: {error}"), traceback.format_exc())
        return cls(error, traceback.format_exc())


class Process(Protocol):
    """What the pool asks of a worker's process, however it was started; `multiprocessing.Process` has it."""

    @property
    def exitcode(self) -> int | None:
        """Exit status, or minus the signal that killed it; None while it lives, or if nobody can tell."""

    def join(self, timeout: float | None = None) -> None: ...

    def terminate(self) -> None: ...

    def kill(self) -> None: ...


@dataclass(frozen=True)
class Started:
    """A process that serves jobs at the other end of a pipe."""

    process: Process
    connection: Connection


class Worker(Generic[S]):
    """A worker process and the job it has in hand."""

    def __init__(self, started: Started) -> None:
        self.process, self.connection = started.process, started.connection
        self.job: Job[S] | None = None
        self.has_retired = False

    def send_job(self, job: Job[S]) -> None:
        self.job = job
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # died before it got the job: `answer` says so
            self.connection.send(job)

    def answer(self) -> Receipt | None:
        """What came of the job; None if the worker died of it.

        Raises:
            InputError: as the stage raised it; any other exception too, with the shard and the worker's traceback
            noted.
        """
        job, self.job = self.job, None
        try:
            answer = self.connection.recv()
        except (EOFError, ConnectionResetError):
            self.process.join(_STOP_TIMEOUT_S)
            return None
        if isinstance(answer, Failure):
            if not isinstance(answer.error, InputError) and job is not None:
                answer.error.add_note(f"in shard {job.shard.name}, in a worker:\n{answer.trace}")
            raise answer.error
        assert isinstance(answer, Answer)
        self.has_retired = answer.is_last
        return answer.receipt

    def stop(self) -> None:
        self.process.terminate()
        self.process.join(_STOP_TIMEOUT_S)
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()
        self.connection.close()


def describe_exit(process: Process) -> str:
    """Its signal or exit status in words."""
    code = process.exitcode
    if code is not None and code < 0:
        return f"killed by {signal.Signals(-code).name}" + (
            ", out of memory perhaps" if code == -signal.SIGKILL else ""
        )
    return f"exit status {code}"


_ours: "weakref.WeakSet[Connection]" = weakref.WeakSet()


def _close_in_child() -> None:
    """A pipe ends when nobody holds its other end: no fork of this process may, and least the one that reads it."""
    for connection in _ours:
        connection.close()
    _ours.clear()


os.register_at_fork(after_in_child=_close_in_child)


def start_process(method: str, target: Callable[..., None], *arguments: object, name: str | None = None) -> Started:
    """A process of this one, by `spawn` or `fork`, that runs `target` with its end of a pipe and the arguments."""
    context = multiprocessing.get_context(method)
    ours, theirs = context.Pipe()
    _ours.add(ours)
    process: BaseProcess = context.Process(target=target, args=(theirs, *arguments), daemon=True, name=name)  # type: ignore[attr-defined]
    # Ctrl-C and a hangup reach the whole terminal group; the mask, inherited through the start, leaves them to the
    # parent.
    former = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
    # NumPy starts a thread for each core, unless the user wants fewer: they spin for a tenth of a second, to do nothing
    # where every core has a worker.
    is_users = _BLAS_THREADS in os.environ
    os.environ.setdefault(_BLAS_THREADS, "1")
    try:
        process.start()
    finally:
        if not is_users:
            os.environ.pop(_BLAS_THREADS, None)  # another thread may have started a process too
        signal.pthread_sigmask(signal.SIG_SETMASK, former)
    theirs.close()
    return Started(process, ours)


def serve(connection: Connection, work: Work[S], growth_bytes: int | None = None) -> None:
    """A worker's life: jobs in, receipts or failures out, until the pipe closes or the parent is gone; with
    `growth_bytes`, until it holds so much more memory than at its start: the next one starts small.
    """
    at_start = resident_bytes()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_die_with_parent, daemon=True).start()
    while True:
        try:
            job = connection.recv()
        except (EOFError, ConnectionResetError):
            return
        try:
            receipt = run_shard(work, job.shard, job.window, job.folder, job.stage)
            has_grown = growth_bytes is not None and at_start > 0 and resident_bytes() > at_start + growth_bytes
            answer: Answer | Failure = Answer(receipt, has_grown)
        except OSError as error:
            answer = Failure.from_exception(explain(error, Path(os.fsdecode(error.filename or job.folder.folder))))
        except Exception as error:
            answer = Failure.from_exception(error)
        try:
            connection.send(answer)
        except (BrokenPipeError, ConnectionResetError):  # the parent was killed: what is committed stays
            return
        if isinstance(answer, Answer) and answer.is_last:
            return


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
