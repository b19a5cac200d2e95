"""Damage of files that this project wrote, named in one line with a fix."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from pipeline_assets.spine.disk_errors import explain_os_error
from pipeline_assets.spine.errors import InputError, RetryableError, one_line
from pipeline_assets.spine.metadata_file import REBUILD

_RETRY = "run the same command again"  # which checks the files of an unfinished build, and repeats what wrote them


@contextlib.contextmanager
def damage_named(path: Path, noun: str) -> Iterator[None]:
    """Convert any error of the block, which parses a file, to an InputError.

    The block must only read and parse `path`, because each of its errors is taken for damage. Errors for a file of an
    unfinished build are RetryableErrors. A missing file stays a FileNotFoundError.
    """
    try:
        yield
    except (InputError, MemoryError):
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise error if error.filename is not None else explain_os_error(error, path) from None
        raise damaged_file(f"not a valid {noun}: {one_line(error, 200) or type(error).__name__}", path) from None


def damaged_file(what: str, path: Path) -> InputError:
    """Return the error for a damaged file of an artifact or of an unfinished build."""
    return RetryableError(what, path, _RETRY) if ".building." in str(path) else InputError(what, path, REBUILD)
