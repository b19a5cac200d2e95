"""Locks: one builder per artifact.

An flock(2) ends with its process, so the lock of a dead owner is free. Each new builder also gets a higher fencing
number (Kleppmann 2016). A builder loses its lock if, for example, the lock file is deleted. A newer builder then has a
higher number, and the older builder cannot seal.

Any user who can open a file, even only for reading, can lock it. So a lock file can be opened only by its owner, or by
the group that shares the folder: users who can only read a data root cannot block a build.
"""

import contextlib
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

from pipeline_assets.spine import durable
from pipeline_assets.spine.builder import Builder, busy_error
from pipeline_assets.spine.errors import InputError, RetryableError
from pipeline_assets.spine.metadata_file import MetadataFormat

_POLL_S = 0.01
LOCK_FIX = "use a data root whose file system has locks; docs/scale.md lists mount options"
_LOCK_PROGRAM = "import fcntl, os, sys; fcntl.flock(os.open(sys.argv[1], os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB)"
_probed_disks: set[int] = set()
# Follow no link, and wait for no FIFO.
OPEN_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
NOT_A_FILE_ERRORS = (errno.ELOOP, errno.EMLINK, errno.EISDIR, errno.ENXIO, errno.ENODEV, errno.EOPNOTSUPP)
_NO_LOCKS_ERRORS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)
_LOCK_FORMAT = MetadataFormat("lock", 4096, "move it away, then run the same command", Builder)


@dataclass(eq=False)
class Lock:
    """Lock of this process on an artifact; `fence` is its fencing number."""

    path: Path
    fence: int
    _descriptor: int

    def raise_if_lost(self) -> None:
        """Raise RetryableError if the lock file is missing, replaced, or has a new owner."""
        with contextlib.suppress(FileNotFoundError):
            is_in_place = os.path.samestat(os.fstat(self._descriptor), os.lstat(self.path))
            if is_in_place and read_builder(self._descriptor).fence <= self.fence:
                return
        raise RetryableError("this builder lost its lock", self.path, "another builder took over; nothing was sealed")


_own_locks: "weakref.WeakSet[Lock]" = weakref.WeakSet()


def _close_locks_in_child() -> None:
    """Close a forked process's copies of locks, so that the locks end with the parent."""
    for lock in _own_locks:
        os.close(lock._descriptor)
    _own_locks.clear()


os.register_at_fork(after_in_child=_close_locks_in_child)


@contextlib.contextmanager
def locked(target: Path, highest_fence: int = 0) -> Iterator[Lock]:
    """Lock the artifact in `target`, which need not exist, with a new fencing number.

    The new number is greater than the lock file's number and `highest_fence` (from leftovers and the manifest). Raise
    BuilderBusyError, with process, host and age, if another builder has the lock. Raise RetryableError if the path is
    not a lock file, belongs to another user, or is on a file system without locks.
    """
    durable.make_folder(target.parent)
    path = lock_path(target)
    descriptor = _open_locked(path, target)
    fence = max(read_builder(descriptor).fence, highest_fence) + 1
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


def lock_path(target: Path) -> Path:
    return target.parent / f".{target.name}.lock"


def locked_path(lock_file: Path) -> Path:
    """Return the path that a lock file locks: the inverse of `lock_path`."""
    return lock_file.with_name(lock_file.name[1 : -len(".lock")])


def _open_locked(path: Path, target: Path) -> int:
    """Lock the lock file and return its descriptor; retry if the file was replaced.

    If another process has the lock, raise BuilderBusyError. First wait a moment if that process has not yet written its
    id, or if it is dead and one of its children still has the lock.
    """
    began = time.monotonic()
    while True:
        descriptor = _open_lock_file(path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = read_builder(descriptor)
            os.close(descriptor)
            if time.monotonic() - began < owner.patience_s:
                time.sleep(_POLL_S)
                continue
            raise busy_error(target, owner) from None
        except OSError as error:
            os.close(descriptor)
            if error.errno not in _NO_LOCKS_ERRORS:
                error.filename = str(path)
                raise
            raise RetryableError(f"this file system has no locks ({error.strerror})", path, LOCK_FIX) from None
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), os.lstat(path)):
                return descriptor
        os.close(descriptor)


def _open_lock_file(path: Path) -> int:
    """Open the lock file, and create it if missing.

    Raise RetryableError if the file has a second hard link, because a write would also change the other path's content.
    """
    durable.call_failpoint("create", path)
    try:
        with durable.explain_failed_create(path):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | OPEN_FLAGS, 0o600)
    except PermissionError:
        if not os.path.lexists(path):
            raise
        fix = "build as that user; a group shares a data root after chmod -R g+ws"
        raise RetryableError("the lock file belongs to another user", path, fix) from None
    except OSError as error:
        if error.errno not in NOT_A_FILE_ERRORS:
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
    """Raise RetryableError if a child process can also lock the locked file.

    In this case, the file system ignores locks. `descriptor` is the locked file. Each disk is tested once, in 20 ms.
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


def read_builder(descriptor: int) -> Builder:
    """Return the builder that an open lock file names; an empty `Builder` if invalid."""
    content = os.pread(descriptor, _LOCK_FORMAT.max_bytes, 0)
    if not content:  # a new file
        return Builder()
    try:
        return _LOCK_FORMAT.parse(content, Path())
    except InputError:
        return Builder()


def _write_builder(descriptor: int, path: Path, fields: dict[str, object]) -> None:
    # One write, padded over the old content: a reader sees either the old owner or the new one.
    durable.call_failpoint("write", path)
    with durable.name_file_in_errors(path):
        os.pwrite(descriptor, json.dumps(fields).encode().ljust(512), 0)
    durable.fsync(descriptor, path)
