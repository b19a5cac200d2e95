"""How worker processes start.

- `forkserver`: one process a command loads what shards need, and forks a worker whenever one is wanted: what was loaded
  is loaded once, and its memory is shared. For Linux.
- `spawn`: each worker is started afresh. For other systems, and where a fork server is killed for its memory.

The fork server runs no thread, so it can fork where the process that wants the workers can't. It starts with the first
worker of the first stage, and serves all stages of the command: as a fork of the process that wants them, where that
has no threads that a fork would miss, so that nothing is imported twice; else afresh. The standard library's fork
server isn't used: it outlives the command, loads modules but no tables, and nobody is told what became of its workers.
"""

import contextlib
import functools
import gc
import itertools
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import reduction
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Literal

from pipeline_assets.spine import worker
from pipeline_assets.spine.errors import InputError, RetryableError
from pipeline_assets.spine.stage import WarmUp, Work
from pipeline_assets.spine.usage import count_forked, forget_forked_cpu

NAME = "corpusmill-fork-server"
_POLL_S = 0.005
_STOP_TIMEOUT_S = 5.0
_ALLOCATOR = "jemalloc_bg_thd\n"


Starter = Callable[[], worker.Started]
StartMethod = Literal["forkserver", "spawn"]


def default_start_method() -> StartMethod:
    """`forkserver` where the system's own libraries are known to survive a fork."""
    return "forkserver" if sys.platform.startswith("linux") else "spawn"


@dataclass(frozen=True)
class _Load:
    """A stage comes: what its work needs is loaded."""

    number: int
    work: Work[Any]
    warm_up: WarmUp
    growth_bytes: int


class _Server:
    """The process that workers are forked from, as its parent sees it."""

    def __init__(self) -> None:
        self.surroundings = _surroundings()
        self.loaded: set[int] = set()  # numbers of stages
        self._started = worker.start_process("fork" if _is_alone() else "spawn", _serve, name=NAME)

    def load(self, stage: _Load) -> None:
        """Raises InputError: as the warm-up raised it; EOFError, ConnectionError: the server died."""
        self._started.connection.send(stage)
        failure = self._started.connection.recv()
        if isinstance(failure, worker.Failure):
            if not isinstance(failure.error, InputError):
                failure.error.add_note(f"while it was loaded, in another process:\n{failure.trace}")
            raise failure.error
        self.loaded.add(stage.number)

    def fork(self, number: int) -> worker.Started:
        """A worker of a stage that is loaded. Raises EOFError, ConnectionError: the server died."""
        control = self._started.connection
        ours, theirs = multiprocessing.Pipe()
        with theirs:
            control.send(("fork", number))
            reduction.send_handle(control, theirs.fileno(), None)
            pid = control.recv()
        return worker.Started(_Forked(pid, self), ours)

    def exit_status(self, pid: int, timeout_s: float | None) -> int | None:
        """Exit status of a worker, or minus its signal; None if it still runs, or if the server is gone."""
        try:
            self._started.connection.send(("wait", pid, timeout_s))
            ended: tuple[int, int, float] | None = self._started.connection.recv()
        except (EOFError, OSError):
            return None
        if ended is None:
            return None
        status, maxrss, cpu_s = ended
        count_forked(maxrss, cpu_s)
        return status

    def stop(self) -> str:
        """Ends the server; its workers go on until their own pipes are closed. How it died, if it had."""
        process = self._started.process
        self._started.connection.close()
        until = time.monotonic() + _STOP_TIMEOUT_S
        while process.exitcode is None and time.monotonic() < until:  # `join` waits for its workers too
            time.sleep(_POLL_S)
        died = worker.describe_exit(process)
        if process.exitcode is None:
            process.kill()
            process.join()
        return died


_server: _Server | None = None
_numbers = itertools.count()


def _forget_in_child() -> None:
    """In a fork of the parent the server isn't its own."""
    global _server
    _server = None


os.register_at_fork(after_in_child=_forget_in_child)


def starter(method: StartMethod, work: Work[Any], warm_up: WarmUp, growth_bytes: int) -> Starter:
    """A function that starts a worker of a stage. A fork server that was killed is started again, once. The function
    raises InputError: as the warm-up raised it, or the fork server was killed twice.
    """
    if method == "forkserver":
        return functools.partial(_start_forked, _Load(next(_numbers), work, warm_up, growth_bytes))
    return functools.partial(worker.start_process, method, worker.serve, work)


def _start_forked(stage: _Load) -> worker.Started:
    with contextlib.suppress(EOFError, ConnectionError):
        return _fork_worker(stage)
    _stop()
    try:
        return _fork_worker(stage)
    except (EOFError, ConnectionError):
        what = f"the process that workers are forked from died ({_stop()})"
        fix = "give the machine more memory, or set CORPUSMILL_START_METHOD=spawn"
        raise RetryableError(what, f"process {os.getpid()}", fix) from None


def _fork_worker(stage: _Load) -> worker.Started:
    global _server
    if _server is not None and _server.surroundings != _surroundings():
        _stop()
    if _server is None:
        _server = _Server()
    if stage.number not in _server.loaded:
        _server.load(stage)
    return _server.fork(stage.number)


def _stop() -> str:
    global _server
    server, _server = _server, None
    if server is None:
        return "gone"
    end = server.stop()
    forget_forked_cpu()
    return end


def _surroundings() -> tuple[object, ...]:
    """What a process has from its parent's."""
    return dict(os.environ), os.getcwd(), tuple(sys.path)


def _is_alone() -> bool:
    """Check whether this process has no threads but its own and an allocator's, which a fork of it does not miss."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        return all(
            int(task.name) == os.getpid() or (task / "comm").read_text() == _ALLOCATOR
            for task in Path("/proc/self/task").iterdir()
        )
    except OSError:  # one ended meanwhile
        return False


class _Forked:
    """A worker that the server forked, with the methods of a `multiprocessing.Process`."""

    def __init__(self, pid: int, server: _Server) -> None:
        self._pid, self._server = pid, server
        self.exitcode: int | None = None

    def join(self, timeout: float | None = None) -> None:
        if self.exitcode is None:
            self.exitcode = self._server.exit_status(self._pid, timeout)

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        """Its number is its own until the server has told its end."""
        if self.exitcode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, number)


def _serve(control: Connection) -> None:
    """The server's life: loads, forks and reaps as asked, until the pipe closes or the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    parent = multiprocessing.parent_process()
    sentinels = [parent.sentinel] if parent is not None else []
    stages: dict[int, _Load] = {}
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the parent has ended
        while control in wait([control, *sentinels]):
            control.send(_answer(control, stages))


def _answer(control: Connection, stages: dict[int, _Load]) -> object:
    """Do what the parent asks next, and return the answer.

    Raises:
        EOFError: the parent closed its end.
    """
    try:
        request = control.recv()
    except (EOFError, ConnectionResetError):
        raise
    except Exception as error:  # of what a stage's modules do when they are imported
        return worker.Failure.from_exception(error)
    match request:
        case _Load():
            stages[request.number] = request
            return _load(request)
        case "fork", number:  # the worker's end of a pipe comes next
            return _fork(control, stages[number])
        case "wait", pid, timeout_s:
            return _exit_status(pid, timeout_s)
    raise AssertionError(request)


def _load(stage: _Load) -> worker.Failure | None:
    try:
        stage.warm_up()
    except Exception as error:
        return worker.Failure.from_exception(error)
    gc.collect()
    gc.freeze()  # the collector would touch, and so copy, what workers share
    return None


def _fork(control: Connection, stage: _Load) -> int:
    handle = reduction.recv_handle(control)
    pid = os.fork()
    if pid:
        os.close(handle)
        return pid
    status = 1
    try:
        control.close()
        worker.serve(Connection(handle), stage.work, stage.growth_bytes)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError):
            sys.stderr.flush()
            sys.stdout.flush()
        os._exit(status)


def _exit_status(pid: int, timeout_s: float | None) -> tuple[int, int, float] | None:
    """Wait for a worker, and return its exit status, `ru_maxrss` and CPU seconds; None if it still runs."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        found, status, used = os.wait4(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status), used.ru_maxrss, used.ru_utime + used.ru_stime
        if deadline is not None and time.monotonic() >= deadline:
            return None
        time.sleep(_POLL_S)
