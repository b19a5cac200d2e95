"""Folders whose files stay readable even if another folder takes their path."""

import contextlib
import functools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from pipeline_assets.spine.replacement import RETRY_HINT, guard_folder


class PinnedFolder:
    """Open folder, whose files remain readable if another folder takes its path."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path, self._descriptor = path, descriptor

    @property
    def stable_path(self) -> Path:
        """Path that leads to this folder even after another folder takes its place.

        On systems without /proc, it is the folder's own path.
        """
        view = Path(f"/proc/self/fd/{self._descriptor}")
        return view if view.is_dir() else self.path

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
def pin_folder(folder: Path, fix: str = RETRY_HINT) -> Iterator[PinnedFolder]:
    """Open a folder; raise ReplacedError if it is replaced before the block ends.

    The message ends with `fix`. A missing folder raises an OSError.
    """
    with guard_folder(folder, fix) as descriptor:
        yield PinnedFolder(folder, descriptor)
