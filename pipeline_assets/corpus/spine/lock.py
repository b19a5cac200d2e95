"""One builder per artifact: a lock that the operating system drops with its process, and a number that only rises.

flock(2) ends with the process that holds it, however that dies, so a dead owner's lock is free. The number (a fencing
token, Kleppmann 2016) tells a builder that lost the lock, through a deleted lock file or a file system without locks,
from the one that has it: it can't seal.
"""

import datetime
import errno
import fcntl
import json
import os
import socket
import stat
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from pipeline_assets.corpus.spine import durable
from pipeline_assets.corpus.spine.errors import InputError, Obstacle
from pipeline_assets.corpus.spine.own_files import OwnFile

_LAST_BREATH_S = 2.0
_POLL_S = 0.01


class _Line(msgspec.Struct):
    """What a lock file says; what of it is odd says nothing."""

    fence: Annotated[int, msgspec.Meta(ge=0, le=1 << 48)] = 0
    pid: Annotated[int, msgspec.Meta(ge=1, lt=1 << 31)] | None = None
    host: str | None = None
    since: Annotated[float, msgspec.Meta(ge=0, lt=1e11)] | None = None


_FILE = OwnFile("lock", 4096, "move it away, then run the same command", _Line)


class BuilderBusy(Obstacle):
    """Another process builds the same artifact."""


@dataclass(frozen=True)
class Builder:
    """The process that holds the lock on an artifact, as far as its lock file tells."""

    pid: int | None
    host: str | None
    since: datetime.datetime | None


@dataclass(eq=False)
class Lock:
    """Held: no other process builds `target`. `fence` is this builder's number."""

    path: Path
    fence: int
    _descriptor: int

    def check(self) -> None:
        """
        Raises:
            Obstacle: the lock file was replaced, or has a higher number, so another builder may be at work.
        """
        try:
            is_ours = os.path.samestat(os.fstat(self._descriptor), os.stat(self.path))
        except FileNotFoundError:
            is_ours = False
        is_ours = is_ours and _read(self._descriptor).fence <= self.fence
        if not is_ours:
            raise Obstacle("this builder lost its lock", self.path, "another builder took over; nothing was sealed")


_held: "weakref.WeakSet[Lock]" = weakref.WeakSet()


def _drop_in_child() -> None:
    """A forked worker must not keep its dead parent's lock."""
    for lock in _held:
        os.close(lock._descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_drop_in_child)


@contextmanager
def locked(target: Path, fence_above: int = 0) -> Iterator[Lock]:
    """Holds the lock on building `target`, a folder that need not exist; its fence is above all former ones.

    Args:
        fence_above: the highest number seen outside the lock file, which may have been deleted.
    Raises:
        BuilderBusy: another builder holds it (says which process, where, since when).
        Obstacle: something that is no lock lies in its place.
        UsageError: no file can be made where it lies.
    """
    durable.make_folder(target.parent)
    path = _lock_path(target)
    descriptor = _flocked(path, target)
    fence = max(_read(descriptor).fence, fence_above) + 1
    lock = Lock(path, fence, descriptor)
    _held.add(lock)
    try:
        owner = {"fence": fence, "pid": os.getpid(), "host": socket.gethostname(), "since": time.time()}
        _write(descriptor, path, owner)
        yield lock
    finally:
        _held.discard(lock)
        os.close(descriptor)


def owner_of(target: Path) -> Builder | None:
    """Who is building `target`; None if nobody holds its lock.

    The lock is tried shared and let go at once: a builder that starts in that very moment is refused and told so. What
    can't be locked, nobody holds.
    """
    try:
        descriptor = _opened(_lock_path(target), os.O_RDONLY)
    except (OSError, Obstacle):
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _builder(_read(descriptor))
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return None


def _lock_path(target: Path) -> Path:
    return target.parent / f".{target.name}.lock"


def _opened(path: Path, flags: int) -> int:
    """A descriptor of the lock file, which no link and no pipe can stand for.

    Raises:
        Obstacle: something that is no lock lies in its place.
    """
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise
    else:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return descriptor
        os.close(descriptor)
    raise Obstacle("this is no lock: it is no plain file", path, _FILE.fix)


def _flocked(path: Path, target: Path) -> int:
    """A descriptor of the lock file, locked; opened again if the file was replaced meanwhile.

    A killed builder's lock is held for a moment longer by a child that it was just about to start: that is waited for.
    """
    deadline = time.monotonic() + _LAST_BREATH_S
    while True:
        durable.step("create", path)
        with durable.refusing_strange_places(path):
            descriptor = _opened(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = _builder(_read(descriptor))
            os.close(descriptor)
            if _is_dead(owner) and time.monotonic() < deadline:
                time.sleep(_POLL_S)
                continue
            raise _busy(target, owner) from None
        if path.exists() and os.path.samestat(os.fstat(descriptor), os.stat(path)):
            return descriptor
        os.close(descriptor)


def _is_dead(owner: Builder) -> bool:
    """Whether it ran on this machine and its process is gone."""
    if owner.pid is None or owner.host != socket.gethostname():
        return False
    try:
        os.kill(owner.pid, 0)
    except OSError as error:
        return error.errno == errno.ESRCH
    return False


def _busy(target: Path, owner: Builder) -> BuilderBusy:
    who = "another process" if owner.pid is None else f"process {owner.pid} on {owner.host}"
    age = "" if owner.since is None else f", for {time.time() - owner.since.timestamp():.0f} s"
    return BuilderBusy(f"{who} is building this{age}", target, "wait for it or stop it, then run the same command")


def _builder(line: _Line) -> Builder:
    started = None if line.since is None else datetime.datetime.fromtimestamp(line.since, datetime.UTC)
    return Builder(line.pid, line.host, started)


def _read(descriptor: int) -> _Line:
    try:
        return _FILE.parse(os.pread(descriptor, _FILE.most_bytes, 0), Path())
    except InputError:
        return _Line()


def _write(descriptor: int, path: Path, value: dict[str, object]) -> None:
    """In one write, padded over what was there: a reader sees the old line or the new one."""
    durable.step("write", path)
    os.pwrite(descriptor, json.dumps(value).encode().ljust(512), 0)
    durable.step("fsync", path)
    os.fsync(descriptor)
