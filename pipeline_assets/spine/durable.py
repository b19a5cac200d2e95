"""File operations that survive a crash.

All durable writes use this module, `file_ranges` or `folder_exchange`. Exceptions are `lock`, which writes lock files,
and `hub_files`, which appends to partial downloads. A `DurableFile` appears completely or not at all. It is written
under a temporary name, synced and renamed; then the folder is synced (the order of Pillai et al., "All File Systems Are
Not Created Equal", OSDI 2014). If tests have set the hook `failpoint`, each operation first calls it.
"""

import contextlib
import errno
import functools
import hashlib
import os
import re
import stat
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, Self

from pipeline_assets.spine.damage import BYTES_DIFFER
from pipeline_assets.spine.errors import RetryableError, UsageError
from pipeline_assets.spine.files import file_sha256, read_blocks
from pipeline_assets.spine.temporary_names import abandoned_entries, temporary_path

Operation = Literal[
    "create", "write", "append", "fsync", "rename", "exchange", "link", "mkdir", "unlink", "rmdir", "chmod"
]

_OPEN_FILE = re.compile(r"\.(nfs|fuse_hidden)[0-9A-Fa-f]+")  # names that NFS and FUSE give to removed, open files

failpoint: Callable[[Operation, Path], None] | None = None


def call_failpoint(operation: Operation, path: Path) -> None:
    """Call the test hook `failpoint`, if set, before an operation on `path`."""
    if failpoint is not None:
        failpoint(operation, path)


@contextlib.contextmanager
def name_file_in_errors(path: object) -> Iterator[None]:
    """Add the file name `path` to an OSError of the block that lacks one."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


@contextlib.contextmanager
def explain_failed_create(path: Path) -> Iterator[None]:
    """Convert a FileNotFoundError to UsageError if the folder of `path` exists.

    Folders that accept no new files, like /proc, cause this error. Other errors of the block are raised unchanged.
    """
    try:
        yield
    except FileNotFoundError:
        if not path.parent.is_dir():
            raise
        raise UsageError("files cannot be created here", path.parent, "choose another folder") from None


@functools.cache
def boot_id() -> str:
    """Return an id of this machine's current boot.

    Files that were written during this boot are intact even if they were never synced. If the system has no boot id,
    each process gets its own id.
    """
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return f"process-{uuid.uuid4()}"


def remove_abandoned(folder: Path) -> None:
    """Remove the temporary files and folders that `abandoned_entries` finds."""
    for path in abandoned_entries(folder):
        with contextlib.suppress(FileNotFoundError):  # another process may remove the same path
            remove(path)


class DurableFile:
    """File that appears at its path, complete and synced, if its block succeeds.

    `bytes_written` and `sha256` are the number and the hash of the bytes written so far. `mode` is the file's mode
    before the umask is applied. If `mode` lets the group read the file, so does every umask in a shared folder.
    """

    def __init__(self, path: Path, mode: int = 0o666) -> None:
        self.path = path
        self._mode = mode
        self.bytes_written = 0
        self._hash = hashlib.sha256()

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()

    def __enter__(self) -> Self:
        while True:
            self._temporary = temporary_path(self.path)
            call_failpoint("create", self._temporary)
            # A dead process with the same id may have left a file of this name.
            with contextlib.suppress(FileExistsError):
                opener = functools.partial(os.open, mode=self._mode)
                self._file = open(self._temporary, "xb", buffering=0, opener=opener)
                break
        if self._mode & stat.S_IRGRP:
            share_file(self._temporary)
        return self

    def write(self, data: bytes | memoryview) -> int:
        view = memoryview(data).cast("B")
        call_failpoint("write", self._temporary)
        write_all(self.fileno(), self.path, view)
        self._hash.update(view)
        self.bytes_written += view.nbytes
        return view.nbytes

    def append(self, source: Path, byte_count: int, sha256: str) -> None:
        """Append the first `byte_count` bytes of the file `source`.

        All bytes of `source` are read and hashed; raise RetryableError if their hash is not `sha256`.
        """
        # One read serves both hashes and the copy. A copy by the kernel plus a read for the hash takes a fifth longer.
        call_failpoint("append", self._temporary)
        source_hash, end = hashlib.sha256(), self.bytes_written + byte_count
        with open(source, "rb", buffering=0) as file:
            for block in read_blocks(file):
                source_hash.update(block)
                taken = block[: end - self.bytes_written]
                write_all(self.fileno(), self.path, taken)
                self._hash.update(taken)
                self.bytes_written += len(taken)
        if source_hash.hexdigest() != sha256:
            raise RetryableError(BYTES_DIFFER, source, "run the same command again")

    def finish(self) -> None:
        """Write buffered bytes before the final sync; subclasses may override it."""

    def _read_back(self) -> None:
        """Raise RetryableError if the file does not have the bytes that were written."""
        if self.bytes_written and file_sha256(self._temporary) != self.sha256:
            raise RetryableError("the disk stored other bytes", self.path, "run the same command again")

    def fileno(self) -> int:
        return self._file.fileno()

    def __exit__(self, error_type: object, error: BaseException | None, traceback: object) -> None:
        try:
            if error is None:
                self.finish()
                fsync(self.fileno(), self._temporary)
                self._read_back()
        except BaseException:
            self._temporary.unlink(missing_ok=True)
            raise
        finally:
            self._file.close()
        if error is None:
            rename(self._temporary, self.path)
        else:
            self._temporary.unlink(missing_ok=True)


def write_all(descriptor: int, path: Path, data: bytes | memoryview) -> None:
    with name_file_in_errors(path):
        while data:
            data = data[os.write(descriptor, data) :]


def write_durably(path: Path, data: bytes, mode: int = 0o666) -> str:
    """Write a file durably, with `mode` minus the umask; return its hex sha256.

    First remove abandoned temporary files from the folder. Several processes may write the same file in parallel.
    """
    if path.parent.is_dir():
        remove_abandoned(path.parent)
    with DurableFile(path, mode) as file:
        file.write(data)
    return file.sha256


def fsync(descriptor: int, path: Path) -> None:
    call_failpoint("fsync", path)
    with name_file_in_errors(path):
        os.fsync(descriptor)


def rename(source: Path, target: Path) -> None:
    call_failpoint("rename", target)
    os.rename(source, target)
    fsync_folder(target.parent)


def fsync_folder(folder: Path) -> None:
    """Sync a folder, so that its new and renamed entries survive a crash."""
    call_failpoint("fsync", folder)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with name_file_in_errors(folder):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Create a folder and its missing parents durably; do nothing if it exists.

    If the parent is shared with a group, the new folder is shared, too. Otherwise, the umask sets the folder's mode.
    """
    if folder.is_dir():
        return
    make_folder(folder.parent)
    call_failpoint("mkdir", folder)
    with explain_failed_create(folder):
        folder.mkdir(exist_ok=True)
    if is_shared(folder.parent):
        with contextlib.suppress(PermissionError):  # another member of the group created and shares it
            set_mode(folder, folder.parent.stat().st_mode & 0o777)
    fsync_folder(folder.parent)


def link(source: Path, target: Path) -> None:
    """Replace `target` with a hard link to a durable file; if that fails, with a copy.

    A link is durable only after its folder is synced; sealing an artifact does this.
    """
    remove(target)
    call_failpoint("link", target)
    try:
        os.link(source, target)
    except OSError:
        with DurableFile(target) as copy:
            copy.append(source, source.stat().st_size, file_sha256(source))


def take_over(path: Path) -> None:
    """Replace a file that another user owns with an equal file that this user owns.

    Except for root, only the owner of a file may set its mode and times, and often only the owner may write it. So
    nothing is done if this user is root. The caller removes abandoned copies (`remove_abandoned`), once for all files
    of a folder.
    """
    if os.geteuid() not in (0, path.stat().st_uid):
        with DurableFile(path) as copy:
            copy.append(path, path.stat().st_size, file_sha256(path))


def set_mode(path: Path, mode: int) -> None:
    """Set the nine permission bits of a file or folder, regardless of the umask."""
    current_mode = stat.S_IMODE(os.stat(path).st_mode)
    if current_mode & 0o777 != mode:
        if path.is_file():
            take_over(path)
        call_failpoint("chmod", path)
        os.chmod(path, current_mode & ~0o777 | mode)  # keeps setuid, setgid and sticky bits


def is_shared(folder: Path) -> bool:
    """Check whether a folder is setgid and writable for its group, as with mode 2775."""
    shared = stat.S_ISGID | stat.S_IWGRP
    return folder.stat().st_mode & shared == shared


def share_file(path: Path) -> None:
    """Let the group read a file of this user, if the folder is shared."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if not mode & stat.S_IRGRP and is_shared(path.parent):
        call_failpoint("chmod", path)
        path.chmod(mode | stat.S_IRGRP)


def remove(path: Path, aside: Path | None = None) -> None:
    """Remove a file, or a folder tree in name order; do nothing if `path` is missing.

    NFS and FUSE keep a removed file, under another name, while a process has it open. A folder with such files gets a
    temporary name next to `aside`, by default next to `path`. `remove_abandoned` of a later process removes it.
    """
    if not _remove_tree(path):
        rename(path, temporary_path(aside or path))


def _remove_tree(path: Path) -> bool:
    """Remove a file or a folder tree; return False if open files keep a folder."""
    if path.is_dir() and not path.is_symlink():
        if not all([_remove_tree(entry) for entry in sorted(path.iterdir())]):
            return False
        call_failpoint("rmdir", path)
        try:
            path.rmdir()
        except OSError as error:
            if error.errno != errno.ENOTEMPTY or not all(map(_OPEN_FILE.fullmatch, os.listdir(path))):
                raise
            return False
    elif path.exists() or path.is_symlink():
        call_failpoint("unlink", path)
        try:
            path.unlink()
        except OSError as error:  # NFS removes the new name only when the file is closed
            if error.errno != errno.EBUSY or not _OPEN_FILE.fullmatch(path.name):
                raise
            return False
    return True
