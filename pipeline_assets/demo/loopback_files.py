"""Files below a folder, opened without following symbolic links."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

CHUNK_BYTES = 1 << 20
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a FIFO must not block the server


@contextmanager
def open_folder(root: Path, *folder_names: str, create: bool = False) -> Iterator[int]:
    """Yield a descriptor of a folder below `root`, opened without following links.

    Only `root` itself may be a link. If `create`, missing folders below `root` are created.
    """
    descriptor = os.open(root, _FOLDER_FLAGS)
    try:
        for name in folder_names:
            if create:
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=descriptor)
            inner = os.open(name, _FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


def is_folder(root: Path, *folder_names: str) -> bool:
    """Check whether a folder exists below `root` and can be reached without a link."""
    try:
        with open_folder(root, *folder_names):
            return True
    except OSError:
        return False


def open_file(name: str, folder_fd: int, flags: int = os.O_RDONLY) -> BinaryIO:
    """Open a file in an open folder; FileNotFoundError if it is not a regular file."""
    descriptor = os.open(name, flags | _FILE_FLAGS, 0o666, dir_fd=folder_fd)
    file = os.fdopen(descriptor, "rb" if flags == os.O_RDONLY else "wb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise FileNotFoundError(f"{name} is not a regular file")
    return file


def stat_file(name: str, folder_fd: int) -> os.stat_result | None:
    """Return the status of a file in an open folder; None if missing or not regular."""
    try:
        state = os.stat(name, dir_fd=folder_fd, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return state if stat.S_ISREG(state.st_mode) else None


@dataclass(frozen=True)
class FileInFolder:
    """File below a folder; each call of `open` opens it without following links."""

    root: Path
    path: str  # relative to `root`, with slashes

    def open(self) -> BinaryIO:
        *names, name = self.path.split("/")
        with open_folder(self.root, *names) as folder:
            return open_file(name, folder)
