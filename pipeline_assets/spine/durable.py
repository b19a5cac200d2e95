"""File operations that survive a crash: every write of the project that must last goes through here.

A file appears under its name whole or not at all: temporary name, write, fsync, rename, fsync of the folder (the order
of Pillai et al., "All File Systems Are Not Created Equal", OSDI 2014). Each operation on the disk first calls the
failpoint, so that a test can count them and stop the process before any of them.
"""

import contextlib
import ctypes
import errno
import functools
import hashlib
import os
import stat
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, Self

from pipeline_assets.spine.errors import RetryableError, UsageError
from pipeline_assets.spine.files import blocks
from pipeline_assets.spine.temporary_names import abandoned, temporary_path

Step = Literal["create", "write", "append", "fsync", "rename", "exchange", "link", "mkdir", "unlink", "rmdir", "chmod"]
_RENAME_EXCHANGE = 2
_AT_FDCWD = -100

failpoint: Callable[[Step, Path], None] | None = None


def step(kind: Step, path: Path) -> None:
    """To be called before an operation on `path` that a crash may come before."""
    if failpoint is not None:
        failpoint(kind, path)


@contextlib.contextmanager
def naming_file(path: object) -> Iterator[None]:
    """Name the file in an OSError of the block that names none, as errors of writes don't."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


@contextlib.contextmanager
def refusing_strange_places(path: Path) -> Iterator[None]:
    """Raises UsageError: the block can't make `path` in a folder that is there: a file system without files of ours."""
    try:
        yield
    except FileNotFoundError:
        if not path.parent.is_dir():
            raise
        raise UsageError("nothing can be made there", path.parent, "give another folder") from None


@functools.cache
def boot() -> str:
    """A name for the time since the machine was started: what was written since then, synced or not, is as written.

    Where the system doesn't tell, it is that of this process alone.
    """
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return f"process-{uuid.uuid4()}"


def remove_leftovers(folder: Path) -> None:
    """Remove temporary files and folders that no living process uses from a folder."""
    for path in abandoned(folder):
        # Another process may remove it now.
        with contextlib.suppress(FileNotFoundError):
            remove(path)


class DurableFile:
    """File that durably gets its name when the context ends without error.

    `bytes_written` and `sha256` cover the bytes so far.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.bytes_written = 0
        self._hash = hashlib.sha256()

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()

    def __enter__(self) -> Self:
        while True:
            self._temporary = temporary_path(self.path)
            step("create", self._temporary)
            # An earlier process of the same number may have left a file of this name.
            with contextlib.suppress(FileExistsError):
                self._file = open(self._temporary, "xb", buffering=0)
                return self

    def write(self, data: bytes | memoryview) -> int:
        view = memoryview(data).cast("B")
        step("write", self._temporary)
        _write(self.fileno(), self.path, view)
        self._hash.update(view)
        self.bytes_written += view.nbytes
        return view.nbytes

    def append(self, source: Path, size: int) -> None:
        """Append the first `size` bytes of a file; raise RetryableError if it is shorter.

        One read serves the hash and the copy. A copy by the kernel and a second read for the hash takes a fifth longer.
        """
        step("append", self._temporary)
        with open(source, "rb", buffering=0) as file:
            left = size
            for block in blocks(file, size):
                _write(self.fileno(), self.path, block)
                self._hash.update(block)
                left -= len(block)
            if left:
                raise RetryableError(f"the file ends {left:,} bytes early", source, "run the command again")
        self.bytes_written += size

    def finish(self) -> None:
        """Write what a subclass holds back, once the context ends without error."""

    def flush(self) -> None:
        """Do nothing, since nothing is buffered; library writers expect this method."""

    def fileno(self) -> int:
        return self._file.fileno()

    @property
    def closed(self) -> bool:
        return self._file.closed

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        try:
            if error is None:
                self.finish()
                fsync(self.fileno(), self._temporary)
        except BaseException:
            self._temporary.unlink(missing_ok=True)
            raise
        finally:
            self._file.close()
        if error is None:
            rename(self._temporary, self.path)
        else:
            self._temporary.unlink(missing_ok=True)


def _write(descriptor: int, path: Path, data: bytes | memoryview) -> None:
    with naming_file(path):
        while data:
            data = data[os.write(descriptor, data) :]


def write_durably(path: Path, data: bytes) -> str:
    """The hex sha256 of `data`, after it stands durable under `path`. Two processes may write it at once.

    Temporary files that dead processes left in its folder are removed first.
    """
    if path.parent.is_dir():
        remove_leftovers(path.parent)
    with DurableFile(path) as file:
        file.write(data)
    return file.sha256


def fsync(descriptor: int, path: Path) -> None:
    """What was written to an open file, durable."""
    step("fsync", path)
    with naming_file(path):
        os.fsync(descriptor)


def reserve(path: Path, size: int) -> None:
    """A file of so many zero bytes under `path`, durable; one that is there stays as it is. Workers write it together,
    each a range of its own, and nothing is copied afterwards.
    """
    if not path.exists():
        with DurableFile(path) as file, naming_file(path):
            os.truncate(file.fileno(), size)


def write_range(path: Path, offset: int, data: memoryview) -> None:
    """`data` at its place in the file, durable."""
    step("append", path)
    with open(path, "r+b", buffering=0) as file:
        file.seek(offset)
        _write(file.fileno(), path, data.cast("B"))
        fsync(file.fileno(), path)


def rename(source: Path, target: Path) -> None:
    """`source` under the name `target`, durable in its folder."""
    step("rename", target)
    os.rename(source, target)
    fsync_folder(target.parent)


def fsync_folder(folder: Path) -> None:
    """The names in a folder, durable."""
    step("fsync", folder)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """A folder, and those above it, each durable in the one above; one that is there is fine.

    In a folder that a group shares it is shared too; else the umask says who may enter.
    """
    if folder.is_dir():
        return
    make_folder(folder.parent)
    step("mkdir", folder)
    with refusing_strange_places(folder):
        folder.mkdir(exist_ok=True)
    if is_shared(folder.parent):
        with contextlib.suppress(PermissionError):  # another of the group made it, and shares it
            set_mode(folder, folder.parent.stat().st_mode & 0o777)
    fsync_folder(folder.parent)


def link(source: Path, target: Path) -> None:
    """A durable file under a second name, in the place of what lies there; a copy where the system has no links.

    The name is durable once its folder is synced: the seal does that, and a receipt whose file is gone is dropped.
    """
    remove(target)
    step("link", target)
    try:
        os.link(source, target)
    except OSError:
        with DurableFile(target) as copy:
            copy.append(source, source.stat().st_size)


def set_mode(path: Path, mode: int) -> None:
    """The rights of a file or folder are these nine bits, whatever the umask was."""
    now = stat.S_IMODE(os.stat(path).st_mode)
    if now & 0o777 != mode:
        step("chmod", path)
        os.chmod(path, now & ~0o777 | mode)


def is_shared(folder: Path) -> bool:
    """Whether a group builds in a folder together: it may write there, and what is made there is the group's (2775)."""
    shared = stat.S_ISGID | stat.S_IWGRP
    return folder.stat().st_mode & shared == shared


def remove(path: Path) -> None:
    """A file or a folder with all in it, in the order of names, is gone; one that is not there is fine."""
    if path.is_dir() and not path.is_symlink():
        for entry in sorted(path.iterdir()):
            remove(entry)
        step("rmdir", path)
        path.rmdir()
    elif path.exists() or path.is_symlink():
        step("unlink", path)
        path.unlink()


def exchange(first: Path, second: Path) -> bool:
    """Swaps two folders in one step that no reader sees half of; False where the system has no such call.

    Linux: renameat2(2) with RENAME_EXCHANGE.
    """
    if not sys.platform.startswith("linux"):
        return False
    step("exchange", second)
    library = ctypes.CDLL(None, use_errno=True)
    renameat2 = getattr(library, "renameat2", None)
    if renameat2 is None:
        return False
    if renameat2(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE) != 0:
        number = ctypes.get_errno()
        if number in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
            return False
        raise OSError(number, os.strerror(number), str(second))
    fsync_folder(second.parent)
    return True
