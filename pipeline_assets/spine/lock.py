"""One builder per artifact: a lock that the operating system drops with its process, and a number that only rises.

flock(2) ends with the process that holds it, however that dies, so a dead owner's lock is free. The number (a fencing
token, Kleppmann 2016) tells a builder that lost the lock, through a deleted lock file or a file system without locks,
from the one that has it: it can't seal.

Who may open a file may lock it, if only to read. So a lock file is its owner's alone, or that of the group which
shares the folder: who may only read a data root can't stop a build.
"""

import contextlib
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
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from pipeline_assets.spine import durable
from pipeline_assets.spine.errors import InputError, RetryableError, TransientError
from pipeline_assets.spine.files import MetadataFile
from pipeline_assets.spine.temporary_names import is_dead_process

_LAST_BREATH_S, _UNNAMED_S = 2.0, 0.3
_POLL_S = 0.01
# No link is followed, no FIFO waited for.
_OPEN_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_NO_FILE = (errno.ELOOP, errno.EMLINK, errno.EISDIR, errno.ENXIO, errno.ENODEV, errno.EOPNOTSUPP)


class Builder(msgspec.Struct, frozen=True, rename={"since_s": "since"}):
    """The process that holds the lock on an artifact, as its lock file says; one with an odd value counts as empty.
    Since when is in seconds since 1970.
    """

    fence: Annotated[int, msgspec.Meta(ge=0, le=1 << 48)] = 0
    pid: Annotated[int, msgspec.Meta(ge=1, lt=1 << 31)] | None = None
    host: str | None = None
    since_s: Annotated[float, msgspec.Meta(ge=0, lt=1e11)] | None = None

    @property
    def since(self) -> datetime.datetime | None:
        return None if self.since_s is None else datetime.datetime.fromtimestamp(self.since_s, datetime.UTC)


_FILE = MetadataFile("lock", 4096, "move it away, then run the same command", Builder)


class BuilderBusy(TransientError):
    """Another process builds the same artifact."""


@dataclass(eq=False)
class Lock:
    """Held: no other process builds `target`. `fence` is this builder's number."""

    path: Path
    fence: int
    _descriptor: int

    def check(self) -> None:
        """Raises RetryableError: the lock file was replaced, or has a higher number: another builder may be at work."""
        with contextlib.suppress(FileNotFoundError):
            is_in_place = os.path.samestat(os.fstat(self._descriptor), os.lstat(self.path))
            if is_in_place and _read(self._descriptor).fence <= self.fence:
                return
        raise RetryableError("this builder lost its lock", self.path, "another builder took over; nothing was sealed")


_held_locks: "weakref.WeakSet[Lock]" = weakref.WeakSet()


def _drop_in_child() -> None:
    """A forked worker must not keep its dead parent's lock."""
    for lock in _held_locks:
        os.close(lock._descriptor)
    _held_locks.clear()


os.register_at_fork(after_in_child=_drop_in_child)


@contextlib.contextmanager
def locked(target: Path, fence_above: int = 0) -> Iterator[Lock]:
    """Holds the lock on building `target`, a folder that need not exist. Its fence is above all former ones, those in
    the lock file, which may have been deleted, and those seen outside of it. Raises BuilderBusy: another builder holds
    it (says which process, where, since when); RetryableError: what lies there is no lock file, or another user's;
    UsageError: no file can be made where it lies.
    """
    durable.make_folder(target.parent)
    path = _lock_path(target)
    descriptor = _flocked(path, target)
    fence = max(_read(descriptor).fence, fence_above) + 1
    lock = Lock(path, fence, descriptor)
    _held_locks.add(lock)
    try:
        owner = {"fence": fence, "pid": os.getpid(), "host": socket.gethostname(), "since": time.time()}
        _write(descriptor, path, owner)
        yield lock
    finally:
        _held_locks.discard(lock)
        os.close(descriptor)


def lock_owner(target: Path) -> Builder | None:
    """Who is building `target`; None if nobody holds its lock, or what lies there is no lock.

    The lock is tried shared and let go at once: a builder that starts in that very moment is refused and told so. Who
    may not open it can't tell whether anybody holds it: somebody unknown, then.
    """
    try:
        descriptor = os.open(_lock_path(target), os.O_RDONLY | _OPEN_FLAGS)
    except PermissionError:
        return Builder()
    except OSError as error:
        if error.errno not in (errno.ENOENT, *_NO_FILE):
            raise
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read(descriptor)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return None


def _lock_path(target: Path) -> Path:
    return target.parent / f".{target.name}.lock"


def _flocked(path: Path, target: Path) -> int:
    """A descriptor of the lock file, locked; opened again if the file was replaced meanwhile.

    A killed builder's lock is held for a moment longer by a child that it was just about to start: that is waited for.
    So is the name of a builder that has the lock and didn't write it yet.
    """
    began = time.monotonic()
    while True:
        descriptor = _opened(path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = _read(descriptor)
            os.close(descriptor)
            patience = _LAST_BREATH_S if is_dead(owner) else _UNNAMED_S if owner.pid is None else 0.0
            if time.monotonic() - began < patience:
                time.sleep(_POLL_S)
                continue
            raise _busy_error(target, owner) from None
        if os.path.lexists(path) and os.path.samestat(os.fstat(descriptor), os.lstat(path)):
            return descriptor
        os.close(descriptor)


def _opened(path: Path) -> int:
    """A descriptor of the lock file, which is made where nothing lies. Raises RetryableError: it is another user's, or
    no plain file of one name, so that a line in it would change something else.
    """
    durable.step("create", path)
    try:
        with durable.refusing_strange_places(path):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | _OPEN_FLAGS, 0o600)
    except PermissionError:
        if not os.path.lexists(path):
            raise
        fix = "build as that user; a group shares a data root after chmod -R g+ws"
        raise RetryableError("this lock is another user's", path, fix) from None
    except OSError as error:
        if error.errno not in _NO_FILE:
            raise
        raise _no_lock(path) from None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
            raise _no_lock(path)
        mode = 0o660 if durable.is_shared(path.parent) else 0o600
        if stat.S_IMODE(found.st_mode) != mode and found.st_uid == os.geteuid():
            durable.step("chmod", path)
            os.fchmod(descriptor, mode)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _no_lock(path: Path) -> RetryableError:
    what = "no lock can be held here: this is a link, a folder or a device, not a file of its own"
    return RetryableError(what, path, "delete it, then run the same command")


def is_dead(owner: Builder) -> bool:
    """Whether it ran on this machine and its process is gone."""
    if owner.pid is None or owner.host != socket.gethostname():
        return False
    return is_dead_process(owner.pid)


def _busy_error(target: Path, owner: Builder) -> BuilderBusy:
    who = "another process" if owner.pid is None else f"process {owner.pid} on {owner.host}"
    age = "" if owner.since_s is None else f", for {max(0.0, time.time() - owner.since_s):.0f} s"
    return BuilderBusy(f"{who} is building this{age}", target, "wait for it or stop it, then run the same command")


def _read(descriptor: int) -> Builder:
    try:
        return _FILE.parse(os.pread(descriptor, _FILE.max_bytes, 0), Path())
    except InputError:
        return Builder()


def _write(descriptor: int, path: Path, value: dict[str, object]) -> None:
    """In one write, padded over what was there: a reader sees the old line or the new one."""
    durable.step("write", path)
    with durable.naming_file(path):
        os.pwrite(descriptor, json.dumps(value).encode().ljust(512), 0)
    durable.fsync(descriptor, path)
