"""Detection of folders that are replaced while they are read."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from pipeline_assets.spine.errors import RetryableError

RETRY_HINT = "run the same command again"


class ReplacedError(RetryableError):
    """Error about a folder that was replaced while it was read."""


@contextlib.contextmanager
def guard_folder(folder: Path, fix: str = RETRY_HINT) -> Iterator[int]:
    """Open a folder; raise ReplacedError if it is replaced before the block ends.

    Yield the folder's file descriptor. The message ends with `fix`. A missing folder raises an OSError.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            yield descriptor
        except Exception as error:  # removed files, or files of two folders, fail in many ways
            if _is_in_place(folder, descriptor):
                raise
            raise replaced_error(folder, fix) from error
        if not _is_in_place(folder, descriptor):
            raise replaced_error(folder, fix)
    finally:
        os.close(descriptor)


def _is_in_place(folder: Path, descriptor: int) -> bool:
    """Check whether a path still leads to the folder that is open at `descriptor`."""
    # No other folder can get the inode while this one is open.
    try:
        return os.path.samestat(os.stat(folder), os.fstat(descriptor))
    except OSError:
        return False


@contextlib.contextmanager
def forbid_replacement(folder: Path) -> Iterator[None]:
    """Raise ReplacedError if the folder is replaced while the block reads its files.

    A missing folder is ignored here; the block reports it.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            stack.enter_context(guard_folder(folder))
        yield


def replaced_error(folder: Path, fix: str = RETRY_HINT) -> ReplacedError:
    return ReplacedError("the folder was replaced while it was read", folder, fix)
