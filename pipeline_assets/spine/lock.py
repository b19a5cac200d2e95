"""Locks: one builder per artifact.

The operating system drops an flock(2) when its process ends in any way, so the lock of a dead owner is free. Each new
builder also gets a higher fencing number (Kleppmann 2016). If a builder loses its lock, because the lock file was
deleted or the file system has no locks, a newer builder has a higher number, and the older one cannot seal.

Any user who can open a file, even only for reading, can lock it. So a lock file can be opened only by its owner, or by
the group that shares the folder: users who can only read a data root cannot block a build.
"""

import contextlib
import datetime
import errno
import fcntl
import json
import os
import socket
import stat
import subprocess
import sys
import time
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from pipeline_assets.spine import durable
from pipeline_assets.spine.errors import InputError, RetryableError, TransientError
from pipeline_assets.spine.metadata_file import MetadataFile
from pipeline_assets.spine.temporary_names import is_dead_process

_DYING_CHILD_S, _UNNAMED_OWNER_S = 2.0, 0.3  # how long `_open_locked` waits
_POLL_S = 0.01
LOCK_FIX = "use a data root whose file system has locks; docs/scale.md lists mount options"
_LOCK_PROGRAM = "import fcntl, os, sys; fcntl.flock(os.open(sys.argv[1], os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB)"
_probed_disks: set[int] = set()
# Follow no link, and wait for no FIFO.
_OPEN_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_NOT_A_FILE = (errno.ELOOP, errno.EMLINK, errno.EISDIR, errno.ENXIO, errno.ENODEV, errno.EOPNOTSUPP)
_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)


class Builder(msgspec.Struct, frozen=True, rename={"since_s": "since"}):
    """Process that has the lock on an artifact, according to the lock file.

    If the file is invalid, `fence` is 0 and each other field is None. `since_s` is in seconds since 1970.
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
    """The artifact is being built by another process."""


@dataclass(eq=False)
class Lock:
    """Lock of this process on an artifact; `fence` is its fencing number."""

    path: Path
    fence: int
    _descriptor: int

    def raise_if_lost(self) -> None:
        """Raise RetryableError if the lock file is missing, replaced or a newer builder's.

        In each case another builder may be running.
        """
        with contextlib.suppress(FileNotFoundError):
            is_in_place = os.path.samestat(os.fstat(self._descriptor), os.lstat(self.path))
            if is_in_place and _read_builder(self._descriptor).fence <= self.fence:
                return
        raise RetryableError("this builder lost its lock", self.path, "another builder took over; nothing was sealed")


_own_locks: "weakref.WeakSet[Lock]" = weakref.WeakSet()


def _drop_in_child() -> None:
    """Close inherited locks in a forked process, so that they end with its parent."""
    for lock in _own_locks:
        os.close(lock._descriptor)
    _own_locks.clear()


os.register_at_fork(after_in_child=_drop_in_child)


@contextlib.contextmanager
def locked(target: Path, fence_above: int = 0) -> Iterator[Lock]:
    """Lock the artifact in `target`, which need not exist, with a new fencing number.

    The new number exceeds the number in the lock file. It also exceeds `fence_above`, the highest number in other
    files, since the lock file may have been deleted.

    Raises:
        BuilderBusy: Another builder has the lock; the message has its process, host and age.
        RetryableError: The path is not a lock file, it belongs to another user, or its file system has no locks.
    """
    durable.make_folder(target.parent)
    path = _lock_path(target)
    descriptor = _open_locked(path, target)
    fence = max(_read_builder(descriptor).fence, fence_above) + 1
    lock = Lock(path, fence, descriptor)
    _own_locks.add(lock)
    try:
        owner = {"fence": fence, "pid": os.getpid(), "host": socket.gethostname(), "since": time.time()}
        _write_builder(descriptor, path, owner)
        _raise_if_not_exclusive(descriptor, path)
        yield lock
    finally:
        _own_locks.discard(lock)
        os.close(descriptor)


def lock_owner(target: Path) -> Builder | None:
    """Return the process that builds `target`; None if no process has its lock.

    A shared lock is tried and released immediately, so a builder that starts at this moment may be refused. Without
    permission to open the lock file, return an empty `Builder`.
    """
    try:
        descriptor = os.open(_lock_path(target), os.O_RDONLY | _OPEN_FLAGS)
    except PermissionError:
        return Builder()
    except OSError as error:
        if error.errno not in (errno.ENOENT, *_NOT_A_FILE):
            raise
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read_builder(descriptor)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return None


def _lock_path(target: Path) -> Path:
    return target.parent / f".{target.name}.lock"


def _open_locked(path: Path, target: Path) -> int:
    """Lock the lock file and return its descriptor; retry if the file was replaced.

    If another process has the lock, raise BuilderBusy. Wait a moment first if that process has not yet written its id,
    or if it died while starting a child: the child then holds the lock until it ends.
    """
    began = time.monotonic()
    while True:
        descriptor = _open_lock_file(path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = _read_builder(descriptor)
            os.close(descriptor)
            patience = _DYING_CHILD_S if is_dead(owner) else _UNNAMED_OWNER_S if owner.pid is None else 0.0
            if time.monotonic() - began < patience:
                time.sleep(_POLL_S)
                continue
            raise _busy_error(target, owner) from None
        except OSError as error:
            os.close(descriptor)
            if error.errno not in _NO_LOCKS:
                error.filename = str(path)
                raise
            raise RetryableError(f"this file system has no locks ({error.strerror})", path, LOCK_FIX) from None
        if os.path.lexists(path) and os.path.samestat(os.fstat(descriptor), os.lstat(path)):
            return descriptor
        os.close(descriptor)


def _open_lock_file(path: Path) -> int:
    """Open the lock file, and create it if missing.

    A file with a second hard link is refused, because writing to it would change another file.
    """
    durable.call_failpoint("create", path)
    try:
        with durable.explain_failed_create(path):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | _OPEN_FLAGS, 0o600)
    except PermissionError:
        if not os.path.lexists(path):
            raise
        fix = "build as that user; a group shares a data root after chmod -R g+ws"
        raise RetryableError("the lock file belongs to another user", path, fix) from None
    except OSError as error:
        if error.errno not in _NOT_A_FILE:
            raise
        raise _lock_file_error(path) from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
            raise _lock_file_error(path)
        mode = 0o660 if durable.is_shared(path.parent) else 0o600
        if stat.S_IMODE(status.st_mode) != mode and status.st_uid == os.geteuid():
            durable.call_failpoint("chmod", path)
            os.fchmod(descriptor, mode)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _raise_if_not_exclusive(descriptor: int, path: Path) -> None:
    """Raise RetryableError if a child process can lock a file that is already locked.

    `descriptor` is open on the locked file. A process probes only the first file of each disk, in about 20 ms.
    """
    disk = os.fstat(descriptor).st_dev
    if disk in _probed_disks:
        return
    child = subprocess.run([sys.executable, "-I", "-S", "-c", _LOCK_PROGRAM, path], stderr=subprocess.DEVNULL)
    if child.returncode == 0:
        raise RetryableError("locks have no effect on this file system: two processes got the same one", path, LOCK_FIX)
    _probed_disks.add(disk)


def _lock_file_error(path: Path) -> RetryableError:
    what = "expected a lock file with one name, got a link, a folder or a device"
    return RetryableError(what, path, "delete it, then run the same command")


def is_dead(owner: Builder) -> bool:
    """Check whether a builder ran on this machine and its process has ended."""
    if owner.pid is None or owner.host != socket.gethostname():
        return False
    return is_dead_process(owner.pid)


def _busy_error(target: Path, owner: Builder) -> BuilderBusy:
    who = "another process" if owner.pid is None else f"process {owner.pid} on {owner.host}"
    age = "" if owner.since_s is None else f", for {max(0.0, time.time() - owner.since_s):.0f} s"
    return BuilderBusy(f"{who} is building this{age}", target, "wait for it or stop it, then run the same command")


def _read_builder(descriptor: int) -> Builder:
    content = os.pread(descriptor, _FILE.max_bytes, 0)
    if not content:  # a new file
        return Builder()
    try:
        return _FILE.parse(content, Path())
    except InputError:
        return Builder()


def _write_builder(descriptor: int, path: Path, value: dict[str, object]) -> None:
    # One write, padded over the old content: a reader sees either the old owner or the new one.
    durable.call_failpoint("write", path)
    with durable.name_file_in_errors(path):
        os.pwrite(descriptor, json.dumps(value).encode().ljust(512), 0)
    durable.fsync(descriptor, path)
