"""Fork server: a process that loads shared data once and forks workers on request.

A command has at most one server at a time. The server starts with the first worker of the first stage, and serves all
stages. A new server replaces a server that is dead, that was interrupted during a request, or whose environment,
working directory or module path differs from the command's. The server runs no thread, so it can fork where its parent
cannot. The server itself is a fork of the parent, or a new interpreter if the parent has threads that a fork would
lose. The standard library's fork server is not used: it outlives the command, preloads modules but no data, and does
not report how its workers ended.
"""

import contextlib
import functools
import gc
import itertools
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import reduction
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from pipeline_assets.spine import usage, worker
from pipeline_assets.spine.errors import InputError, RetryableError
from pipeline_assets.spine.stage import WarmUp, Work

SERVER_NAME = "corpusmill-fork-server"
_POLL_S = 0.005
_STOP_TIMEOUT_S = 5.0
_THREAD_EXIT_S = 0.2  # a spawned server imports the program again, which takes longer
_ALLOCATOR_THREAD = "jemalloc_bg_thd\n"
_POLARS_VARIABLE = "_RJEM_MALLOC_CONF"  # set when polars is imported, often after the server has started


@dataclass(frozen=True)
class _LoadRequest:
    """Request to load a stage's data; later requests name only the `stage_number`."""

    stage_number: int
    work: Work[Any]
    warm_up: WarmUp
    max_growth_bytes: int


class _Server:
    """Handle of the fork server in its parent process."""

    def __init__(self) -> None:
        self.inherited_state = _inherited_state()
        self.loaded_stages: set[int] = set()  # numbers of stages
        self._started = worker.start_process("fork" if _can_fork_safely() else "spawn", _serve, name=SERVER_NAME)

    @property
    def is_closed(self) -> bool:
        return self._started.connection.closed

    @contextlib.contextmanager
    def _exchange(self) -> Iterator[Connection]:
        """Yield the connection for one request and its answer.

        If the block fails, for example by Ctrl-C, close the connection, which ends the server. The next request would
        otherwise get the answer to this one.
        """
        try:
            yield self._started.connection
        except BaseException:
            self._started.connection.close()
            raise

    def load(self, request: _LoadRequest) -> None:
        """Load the data of a stage in the server; if the warm-up fails, raise its error.

        Raise EOFError or ConnectionError if the server died.
        """
        with self._exchange() as control:
            control.send(request)
            failure = control.recv()
        if isinstance(failure, worker.Failure):
            if not isinstance(failure.error, InputError):
                failure.error.add_note(f"while it was loaded, in another process:\n{failure.traceback_text}")
            raise failure.error
        self.loaded_stages.add(request.stage_number)

    def fork(self, stage_number: int) -> worker.StartedProcess:
        """Fork a worker of a loaded stage; EOFError or ConnectionError if the server died."""
        ours, theirs = multiprocessing.Pipe()
        with theirs, self._exchange() as control:
            control.send(("fork", stage_number))
            reduction.send_handle(control, theirs.fileno(), None)
            pid = control.recv()
        return worker.StartedProcess(_ForkedWorker(pid, self), ours)

    def wait_for_exit(self, pid: int, timeout_s: float | None) -> int | None:
        """Wait for a worker; return its exit status, or -N if signal N ended it.

        Return None if the worker still runs after `timeout_s`, or if the server has ended.
        """
        with contextlib.suppress(EOFError, OSError), self._exchange() as control:
            control.send(("wait", pid, timeout_s))
            ended: tuple[int, int, float] | None = control.recv()
            if ended is not None:
                status, maxrss, cpu_s = ended
                usage.add_forked_usage(maxrss, cpu_s)
                return status
        return None

    def stop(self) -> str:
        """Stop the server, and describe how it ended.

        The server's workers run until their own pipes close.
        """
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
_stage_numbers = itertools.count()


def _forget_server_in_child() -> None:
    """Forget the server in forks of this process: only the parent owns the server."""
    global _server
    _server = None


os.register_at_fork(after_in_child=_forget_server_in_child)


def forking_starter(work: Work[Any], warm_up: WarmUp, max_growth_bytes: int) -> worker.Starter:
    """Return a function that lets the server fork a worker for a stage.

    The function replaces a dead server once. If the new server dies, too, the function raises RetryableError. Errors of
    the warm-up are also raised.
    """
    return functools.partial(_fork_or_restart, _LoadRequest(next(_stage_numbers), work, warm_up, max_growth_bytes))


def _fork_or_restart(request: _LoadRequest) -> worker.StartedProcess:
    with contextlib.suppress(EOFError, ConnectionError):
        return _fork_worker(request)
    _stop_server()
    try:
        return _fork_worker(request)
    except (EOFError, ConnectionError):
        what = f"the process that workers are forked from died ({_stop_server()})"
        fix = "give the machine more memory, or set CORPUSMILL_START_METHOD=spawn"
        raise RetryableError(what, f"process {os.getpid()}", fix) from None


def _fork_worker(request: _LoadRequest) -> worker.StartedProcess:
    global _server
    if _server is not None and (_server.is_closed or _server.inherited_state != _inherited_state()):
        _stop_server()
    if _server is None:
        _server = _Server()
    if request.stage_number not in _server.loaded_stages:
        _server.load(request)
    return _server.fork(request.stage_number)


def _stop_server() -> str:
    global _server
    server, _server = _server, None
    if server is None:
        return "gone"
    end = server.stop()
    usage.reset_forked_cpu()
    return end


def _inherited_state() -> tuple[object, ...]:
    """Return the state that forks inherit: environment, working folder, import path."""
    environment = {name: value for name, value in os.environ.items() if name != _POLARS_VARIABLE}
    return environment, os.getcwd(), tuple(sys.path)


def _can_fork_safely() -> bool:
    """Check whether all threads except the main one belong to a memory allocator.

    A fork keeps only the thread that calls it, but the allocator, jemalloc, works without its threads. The system lists
    a joined thread for a moment longer.
    """
    if not sys.platform.startswith("linux"):
        return False
    until = time.monotonic() + _THREAD_EXIT_S
    while _has_other_threads():
        if threading.active_count() > 1 or time.monotonic() > until:
            return False
        time.sleep(_POLL_S)
    return True


def _has_other_threads() -> bool:
    try:
        return any(
            int(task.name) != os.getpid() and (task / "comm").read_text() != _ALLOCATOR_THREAD
            for task in Path("/proc/self/task").iterdir()
        )
    except OSError:  # a thread ended during the scan
        return True


class _ForkedWorker:
    """Worker that the server forked, with the methods of a `multiprocessing.Process`."""

    def __init__(self, pid: int, server: _Server) -> None:
        self._pid, self._server = pid, server
        self.exitcode: int | None = None

    def join(self, timeout: float | None = None) -> None:
        if self.exitcode is None:
            self.exitcode = self._server.wait_for_exit(self._pid, timeout)

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, signal_number: int) -> None:
        """Send a signal to the worker, unless it is known to have ended.

        The worker's process id is not reused before the server reports that the worker ended.
        """
        if self.exitcode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal_number)


def _serve(control: Connection) -> None:
    """Answer the parent's requests to load, fork and wait, until the parent ends."""
    gc.freeze()  # a collection would touch, and so copy, the memory that a fork shares with its parent
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    parent = multiprocessing.parent_process()
    sentinels = [parent.sentinel] if parent is not None else []
    requests: dict[int, _LoadRequest] = {}
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the parent has ended
        while control in wait([control, *sentinels]):
            control.send(_answer_request(control, requests))


def _answer_request(control: Connection, requests: dict[int, _LoadRequest]) -> object:
    """Process the next request of the parent, and return the answer."""
    try:
        request = control.recv()
    except (EOFError, ConnectionResetError):
        raise
    except Exception as error:  # raised by importing modules of the stage
        return worker.Failure.from_exception(error)
    match request:
        case _LoadRequest():
            requests[request.stage_number] = request
            return _load(request)
        case "fork", stage_number:  # the worker's end of a pipe comes next
            return _fork(control, requests[stage_number])
        case "wait", pid, timeout_s:
            return _wait_for_exit(pid, timeout_s)
    raise AssertionError(request)


def _load(request: _LoadRequest) -> worker.Failure | None:
    try:
        request.warm_up()
    except Exception as error:
        return worker.Failure.from_exception(error)
    gc.collect()
    gc.freeze()  # the collector would touch, and so copy, shared memory
    return None


def _fork(control: Connection, request: _LoadRequest) -> int:
    handle = reduction.recv_handle(control)
    pid = os.fork()
    if pid:
        os.close(handle)
        return pid
    status = 1
    try:
        control.close()
        worker.serve(Connection(handle), request.work, request.max_growth_bytes)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _wait_for_exit(pid: int, timeout_s: float | None) -> tuple[int, int, float] | None:
    """Wait for a worker; return its exit status, `ru_maxrss` and CPU seconds.

    Return None if the worker still runs after `timeout_s`.
    """
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        ended_pid, status, used = os.wait4(pid, os.WNOHANG)
        if ended_pid:
            return os.waitstatus_to_exitcode(status), used.ru_maxrss, used.ru_utime + used.ru_stime
        if deadline is not None and time.monotonic() >= deadline:
            return None
        time.sleep(_POLL_S)
