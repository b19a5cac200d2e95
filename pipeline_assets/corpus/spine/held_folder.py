"""A folder held open by a descriptor: what is opened through it is of this very folder, whatever takes its name."""

import contextlib
import functools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from pipeline_assets.corpus.spine.errors import Obstacle


class HeldFolder:
    """A folder as `held` opened it.

    Attributes:
        path: where it lay then; a folder that is replaced lies elsewhere, until it is removed.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path, self._descriptor = path, descriptor

    @property
    def view(self) -> Path:
        """A path that leads to this very folder, where the system has one, as Linux does; else its own."""
        view = Path(f"/proc/self/fd/{self._descriptor}")
        return view if view.is_dir() else self.path

    def open(self, name: str) -> BinaryIO:
        """A file of the folder, for reading.

        Raises:
            OSError: it has none of this name, or it can't be read.
        """
        return open(name, "rb", opener=functools.partial(os.open, dir_fd=self._descriptor))

    def size(self, name: str) -> int | None:
        """Of a file of the folder, in bytes; None where there is none."""
        try:
            return os.stat(name, dir_fd=self._descriptor).st_size
        except (FileNotFoundError, NotADirectoryError):
            return None

    def is_in_place(self) -> bool:
        """Whether its path still leads to it. While it is held, no other folder can have its inode."""
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self._descriptor))
        except OSError:
            return False


_AGAIN = "run the same command again"


@contextlib.contextmanager
def held(folder: Path, fix: str = _AGAIN) -> Iterator[HeldFolder]:
    """Holds a folder while the block reads it; what the block found counts only if nothing took its place meanwhile.

    Args:
        fix: what to do where something did.
    Raises:
        OSError: there is no such folder.
        Obstacle: another one took its place meanwhile.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        opened = HeldFolder(folder, descriptor)
        try:
            yield opened
        except Exception as error:  # files that were removed, or halves of two sets, fail in any way
            if opened.is_in_place():
                raise
            raise was_replaced(folder, fix) from error
        if not opened.is_in_place():
            raise was_replaced(folder, fix)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def unreplaced(folder: Path) -> Iterator[None]:
    """The block reads files of a folder by their paths, one after the other: all of them are of one folder. Where there
    is no folder, the block says so.

    Raises:
        Obstacle: another one took its place meanwhile.
    """
    with contextlib.ExitStack() as holding:
        with contextlib.suppress(OSError):
            holding.enter_context(held(folder))
        yield


def was_replaced(folder: Path, fix: str = _AGAIN) -> Obstacle:
    """Another folder took the place of the one that was opened, or none is there any more."""
    return Obstacle("it was replaced while it was read", folder, fix)
