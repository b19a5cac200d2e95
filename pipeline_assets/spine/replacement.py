"""Detection of folders that are replaced while they are read."""

import contextlib
import functools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from pipeline_assets.spine.errors import RetryableError

_RETRY_HINT = "run the same command again"


class ReplacedError(RetryableError):
    """Error about a folder that was replaced while it was read."""


def replaced_error(folder: Path, fix: str = _RETRY_HINT) -> ReplacedError:
    return ReplacedError("the folder was replaced while it was read", folder, fix)


class PinnedFolder:
    """Opened folder, whose files remain readable if another folder takes its path."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path, self._descriptor = path, descriptor

    @property
    def stable_path(self) -> Path:
        """Path that leads to this folder even after another folder takes its place.

        On systems without /proc, it is the folder's own path.
        """
        view = Path(f"/proc/self/fd/{self._descriptor}")
        return view if view.is_dir() else self.path

    @property
    def is_in_place(self) -> bool:
        """True if the path still leads to this folder."""
        # No other folder can get the inode while this one is open.
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self._descriptor))
        except OSError:
            return False

    def open(self, file_name: str) -> BinaryIO:
        """Open a file of the folder for reading."""
        return open(file_name, "rb", opener=functools.partial(os.open, dir_fd=self._descriptor))

    def size(self, file_name: str) -> int | None:
        """Return the size of a file of the folder in bytes; None if missing."""
        try:
            return os.stat(file_name, dir_fd=self._descriptor).st_size
        except (FileNotFoundError, NotADirectoryError):
            return None


@contextlib.contextmanager
def pin_folder(folder: Path, fix: str = _RETRY_HINT) -> Iterator[PinnedFolder]:
    """Open a folder; raise ReplacedError if it is replaced before the block ends.

    The message ends with `fix`. A missing folder raises an OSError.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    pinned = PinnedFolder(folder, descriptor)
    try:
        try:
            yield pinned
        except Exception as error:  # removed files, or files of two folders, fail in many ways
            if pinned.is_in_place:
                raise
            raise replaced_error(folder, fix) from error
        if not pinned.is_in_place:
            raise replaced_error(folder, fix)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def forbid_replacement(folder: Path, fix: str = _RETRY_HINT) -> Iterator[None]:
    """Raise ReplacedError if the folder is replaced while the block reads its files.

    The message ends with `fix`. A missing folder is ignored here; the block reports it.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            stack.enter_context(pin_folder(folder, fix))
        yield
