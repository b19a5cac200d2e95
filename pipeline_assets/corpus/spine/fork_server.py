"""A process that loads what a stage needs once, and forks workers that share it.

It is started afresh and runs no Python thread, so it can fork where the process that wants the workers can't. The
standard library's fork server isn't used: it outlives the stage, loads modules but no tables, and nobody is told the
processor time of its workers.
"""

import contextlib
import gc
import multiprocessing
import os
import signal
import sys
import time
import traceback
from dataclasses import dataclass
from multiprocessing import reduction
from multiprocessing.connection import Connection, wait
from typing import Any

from pipeline_assets.corpus.spine.errors import InputError, Obstacle
from pipeline_assets.corpus.spine.stage import WarmUp, Work
from pipeline_assets.corpus.spine.worker import Failure, Started, how_it_died, serve, start_process

_POLL_S = 0.005
_STOP_TIMEOUT_S = 5.0


@dataclass(frozen=True)
class _Fork:
    """A worker is wanted; its end of a pipe comes next."""


@dataclass(frozen=True)
class _WaitFor:
    """What became of a worker, waiting for its end for so long; None waits for ever."""

    pid: int
    timeout_s: float | None


class ForkServer:
    """The process that workers are forked from, as its parent sees it. It starts with the first worker."""

    def __init__(self, work: Work[Any], warm_up: WarmUp, growth_bytes: int) -> None:
        self._work, self._warm_up, self._growth_bytes = work, warm_up, growth_bytes
        self._server: Started | None = None

    def start(self) -> Started:
        """A new worker; a server that was killed is started again, once.

        Raises:
            InputError: as the warm-up raised it, or the server was killed twice.
        """
        with contextlib.suppress(EOFError, ConnectionError):
            return self._fork()
        self.stop()
        try:
            return self._fork()
        except (EOFError, ConnectionError):
            died = "gone"
            if self._server is not None:
                self._server.process.join(_STOP_TIMEOUT_S)
                died = how_it_died(self._server.process)
            what = f"the process that workers are forked from died ({died})"
            fix = "give the machine more memory, or set CORPUSMILL_START_METHOD=spawn"
            raise Obstacle(what, f"process {os.getpid()}", fix) from None

    def exit_status(self, pid: int, timeout_s: float | None) -> int | None:
        """Exit status of a worker, or minus its signal; None if it still runs, or if the server is gone."""
        if self._server is None:
            return None
        try:
            self._server.connection.send(_WaitFor(pid, timeout_s))
            status = self._server.connection.recv()
        except (EOFError, ConnectionError):
            return None
        return int(status) if status is not None else None

    def stop(self) -> None:
        """Ends the server; its workers go on until their own pipes are closed."""
        if self._server is not None:
            server, self._server = self._server, None
            server.connection.close()
            server.process.join(_STOP_TIMEOUT_S)
            if server.process.is_alive():
                server.process.kill()
                server.process.join()

    def _fork(self) -> Started:
        if self._server is None:
            self._server = start_process("spawn", _serve_forks, self._work, self._warm_up, self._growth_bytes)
            failure = self._server.connection.recv()
            if isinstance(failure, Failure):
                if not isinstance(failure.error, InputError):
                    failure.error.add_note(f"while it was loaded, in another process:\n{failure.trace}")
                raise failure.error
        control = self._server.connection
        ours, theirs = multiprocessing.Pipe()
        with theirs:
            control.send(_Fork())
            reduction.send_handle(control, theirs.fileno(), None)
            pid = control.recv()
        return Started(_Forked(pid, self), ours)


class _Forked:
    """A worker that the server forked, with the methods of a `multiprocessing.Process`."""

    def __init__(self, pid: int, server: ForkServer) -> None:
        self._pid, self._server = pid, server
        self.exitcode: int | None = None

    def join(self, timeout: float | None = None) -> None:
        if self.exitcode is None:
            self.exitcode = self._server.exit_status(self._pid, timeout)

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def is_alive(self) -> bool:
        self.join(0)
        return self.exitcode is None and self._signal(0)

    def _signal(self, number: int) -> bool:
        """Whether there was a process to send it to. Its number is its own until the server has told its end."""
        if self.exitcode is not None:
            return False
        try:
            os.kill(self._pid, number)
        except ProcessLookupError:
            return False
        return True


def _serve_forks(control: Connection, work: Work[Any], warm_up: WarmUp, growth_bytes: int) -> None:
    """The server's life: loads, then forks and reaps as asked, until the pipe closes or the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        warm_up()
    except Exception as error:
        control.send(Failure.of(error))
        return
    gc.collect()
    gc.freeze()  # the collector would touch, and so copy, what workers share
    control.send(None)
    parent = multiprocessing.parent_process()
    sentinels = [parent.sentinel] if parent is not None else []
    while control in wait([control, *sentinels]):
        try:
            request = control.recv()
        except EOFError:
            return
        match request:
            case _Fork():
                control.send(_fork(control, work, growth_bytes))
            case _WaitFor(pid, timeout_s):
                control.send(_exit_status(pid, timeout_s))


def _fork(control: Connection, work: Work[Any], growth_bytes: int) -> int:
    handle = reduction.recv_handle(control)
    pid = os.fork()
    if pid:
        os.close(handle)
        return pid
    status = 1
    try:
        control.close()
        serve(Connection(handle), work, growth_bytes)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError):
            sys.stderr.flush()
            sys.stdout.flush()
        os._exit(status)


def _exit_status(pid: int, timeout_s: float | None) -> int | None:
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if deadline is not None and time.monotonic() >= deadline:
            return None
        time.sleep(_POLL_S)
