"""Worker processes, which run a stage on one shard after another."""

import contextlib
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType
from typing import Generic, Protocol

from pipeline_assets.spine.disk_errors import explain_os_error
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.stage import S, Window, Work, run_shard
from pipeline_assets.spine.staging import Receipt, StagingView, missing_folder_error
from pipeline_assets.spine.usage import resident_bytes

_STOP_TIMEOUT_S = 5.0
_BLAS_VARIABLE = "OPENBLAS_NUM_THREADS"


@dataclass(frozen=True)
class ShardJob(Generic[S]):
    """Shard and window for a worker to run; without `stage`, no receipt is committed."""

    shard: S
    window: Window
    staging: StagingView
    stage: str | None


@dataclass(frozen=True)
class Failure:
    """Exception of another process, and its traceback."""

    error: BaseException
    traceback_text: str

    @classmethod
    def from_exception(cls, error: Exception) -> "Failure":
        """Wrap the handled exception `error`, or only its text if pickling fails."""
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            return cls(RuntimeError(f"{type(error).__name__}: {error}"), traceback.format_exc())
        return cls(error, traceback.format_exc())

    def error_for(self, job: "ShardJob | None") -> BaseException:
        """Return the error, with a note about shard and traceback.

        An InputError gets no note. Without `job`, no error gets a note.
        """
        if not isinstance(self.error, InputError) and job is not None:
            self.error.add_note(f"in shard {job.shard.name}, in a worker:\n{self.traceback_text}")
        return self.error


class Process(Protocol):
    """Methods of `multiprocessing.Process` that the pool uses."""

    @property
    def exitcode(self) -> int | None:
        """Exit status, or -N after signal N; None if unknown or the process still runs."""

    def join(self, timeout: float | None = None) -> None: ...

    def terminate(self) -> None: ...

    def kill(self) -> None: ...


@dataclass(frozen=True)
class StartedProcess:
    """Started process, with the parent's end of the pipe to it."""

    process: Process
    connection: Connection


Starter = Callable[[], StartedProcess]


class Worker(Generic[S]):
    """Worker process and its current job."""

    def __init__(self, started: StartedProcess) -> None:
        self.process, self.connection = started.process, started.connection
        self.job: ShardJob[S] | None = None
        self.has_retired = False

    def send_job(self, job: ShardJob[S]) -> None:
        self.job = job
        # If the worker died before it got the job, `receive_receipt` reports that.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send(job)

    def receive_receipt(self) -> Receipt | None:
        """Return the job's receipt, or None if the worker died; raise the job's error."""
        job, self.job = self.job, None
        try:
            answer = self.connection.recv()
        except (EOFError, ConnectionResetError):
            self.process.join(_STOP_TIMEOUT_S)
            return None
        if isinstance(answer, Failure):
            raise answer.error_for(job)
        receipt: Receipt
        receipt, self.has_retired = answer
        return receipt

    def describe_end(self) -> str:
        return describe_exit(self.process)

    def wait_for_any(self, workers: "Sequence[Worker[S]]") -> "Sequence[Worker[S]]":
        """Wait until a worker answers or dies; return all such workers."""
        # The pipe of a dead worker is at its end, which also counts as ready.
        busy = {worker.connection: worker for worker in workers}
        return [busy[connection] for connection in wait(list(busy))]  # type: ignore[index]

    def stop(self) -> None:
        self.process.terminate()
        self.process.join(_STOP_TIMEOUT_S)
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()
        self.connection.close()


def describe_exit(process: Process) -> str:
    """Describe the signal or exit status of a process that ended."""
    code = process.exitcode
    if code is None or code >= 0:
        return f"exit status {code}"
    guess = ", out of memory perhaps" if code == -signal.SIGKILL else ""
    return f"killed by {signal.Signals(-code).name}{guess}"


_parent_pipe_ends: "weakref.WeakSet[Connection]" = weakref.WeakSet()


def _close_pipes_in_child() -> None:
    """Close the parent's ends of pipes in a forked process.

    An open copy in another process would keep a pipe open after the parent has closed its own end.
    """
    for connection in _parent_pipe_ends:
        connection.close()
    _parent_pipe_ends.clear()


os.register_at_fork(after_in_child=_close_pipes_in_child)


_main_lock = threading.Lock()


@contextlib.contextmanager
def _hide_main() -> Iterator[None]:
    """Hide the main module, so that `spawn` does not import it in the child."""
    with _main_lock:
        main = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = main


def start_process(
    method: str, target: Callable[..., None], *arguments: object, name: str | None = None
) -> StartedProcess:
    """Start a process by `spawn` or `fork`; it runs `target` with one end of a pipe.

    A process started by `spawn` does not import the main module, since a script may start a build when imported.
    """
    context = multiprocessing.get_context(method)
    ours, theirs = context.Pipe()
    _parent_pipe_ends.add(ours)
    if method == "spawn":  # which starts this tracker first, and CPython 3.11 then unblocks SIGINT in this thread
        resource_tracker.ensure_running()
    process: BaseProcess = context.Process(target=target, args=(theirs, *arguments), daemon=True, name=name)  # type: ignore[attr-defined]
    # Ctrl-C and a hangup reach all processes of the terminal. The child inherits this mask, so that only the parent
    # handles them.
    former = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
    # By default NumPy's BLAS starts a thread per core. If every core has a worker, these threads spin uselessly for a
    # tenth of a second.
    is_users = _BLAS_VARIABLE in os.environ
    os.environ.setdefault(_BLAS_VARIABLE, "1")
    try:
        with _hide_main() if method == "spawn" else contextlib.nullcontext():
            process.start()
    finally:
        if not is_users:
            os.environ.pop(_BLAS_VARIABLE, None)  # another thread may have removed it
        signal.pthread_sigmask(signal.SIG_SETMASK, former)
    theirs.close()
    return StartedProcess(process, ours)


def serve(connection: Connection, work: Work[S], max_growth_bytes: int | None = None) -> None:
    """Run jobs and send receipts or failures until the pipe closes or the parent ends.

    A worker whose memory grew by more than `max_growth_bytes` exits, and a fresh one replaces it; None sets no limit.
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
        result = run_job(work, job)
        _flush_streams()  # the parent ends a worker by SIGTERM, which drops buffered output
        has_grown = max_growth_bytes is not None and at_start > 0 and resident_bytes() > at_start + max_growth_bytes
        is_last = has_grown and isinstance(result, Receipt)
        try:
            connection.send((result, is_last) if isinstance(result, Receipt) else result)
        except (BrokenPipeError, ConnectionResetError):  # the parent was killed; the commit is durable
            return
        if is_last:
            return


def _flush_streams() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # full disk, closed by the work, or None
            stream.flush()


def run_job(work: Work[S], job: ShardJob[S]) -> Receipt | Failure:
    """Run a job in this process; return a Failure if it raises an exception."""
    try:
        return run_shard(work, job.shard, job.window, job.staging, job.stage)
    except OSError as error:
        folder = job.staging.folder
        if isinstance(error, FileNotFoundError) and not folder.exists():
            return Failure.from_exception(missing_folder_error(folder))
        return Failure.from_exception(explain_os_error(error, Path(os.fsdecode(error.filename or folder))))
    except Exception as error:
        return Failure.from_exception(error)


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
