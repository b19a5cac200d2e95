"""Folders that stay open while they are read, so that a replacement is detected."""

import contextlib
import functools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from pipeline_assets.spine.errors import RetryableError

_RETRY_HINT = "run the same command again"


class PinnedFolder:
    """Open folder and its path.

    If another folder replaces it, the open one keeps its files until it is removed.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path, self._descriptor = path, descriptor

    @property
    def view(self) -> Path:
        """Path that leads to this folder even after a replacement.

        It needs /proc, as Linux has; other systems get the folder's own path.
        """
        view = Path(f"/proc/self/fd/{self._descriptor}")
        return view if view.is_dir() else self.path

    def open(self, name: str) -> BinaryIO:
        """Open a file of the folder for reading.

        Raises:
            OSError: The file does not exist or cannot be read.
        """
        return open(name, "rb", opener=functools.partial(os.open, dir_fd=self._descriptor))

    def size(self, name: str) -> int | None:
        """Return the size of a file of the folder in bytes; None if missing."""
        try:
            return os.stat(name, dir_fd=self._descriptor).st_size
        except (FileNotFoundError, NotADirectoryError):
            return None

    def is_in_place(self) -> bool:
        """Check whether the path still leads to this folder.

        No other folder can get its inode while it is open.
        """
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self._descriptor))
        except OSError:
            return False


@contextlib.contextmanager
def pin_folder(folder: Path, fix: str = _RETRY_HINT) -> Iterator[PinnedFolder]:
    """Open a folder while the block reads it, and detect a replacement at the end.

    Raises:
        OSError: The folder does not exist.
        RetryableError: Another folder replaced it during the block; the message ends with `fix`.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        opened = PinnedFolder(folder, descriptor)
        try:
            yield opened
        except Exception as error:  # files that were removed, or halves of two sets, fail in any way
            if opened.is_in_place():
                raise
            raise replaced_error(folder, fix) from error
        if not opened.is_in_place():
            raise replaced_error(folder, fix)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def forbid_replacement(folder: Path) -> Iterator[None]:
    """Check that all files that the block reads by path come from one folder.

    A missing folder is ignored here; the block reports it.

    Raises:
        RetryableError: Another folder replaced it during the block.
    """
    with contextlib.ExitStack() as holding:
        with contextlib.suppress(OSError):
            holding.enter_context(pin_folder(folder))
        yield


def replaced_error(folder: Path, fix: str = _RETRY_HINT) -> RetryableError:
    """Return the error for a folder that was replaced or removed after it was opened."""
    return RetryableError("the folder was replaced while it was read", folder, fix)
