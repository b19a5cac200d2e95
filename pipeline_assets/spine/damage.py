"""Errors about damage in files that this project wrote."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from pipeline_assets.spine.disk_errors import explain_os_error
from pipeline_assets.spine.errors import InputError, RetryableError, one_line
from pipeline_assets.spine.metadata_file import REBUILD

BYTES_DIFFER = "the bytes differ from those written"
_RETRY_HINT = "run the same command again"  # it checks the files of an unfinished build, and rewrites damaged ones


@contextlib.contextmanager
def errors_as_damage(path: Path, noun: str) -> Iterator[None]:
    """Convert errors of a `with` block that parses a file to InputErrors.

    The block must only read and parse `path`, because most errors are reported as damage: `not a valid NOUN`. An
    InputError, a MemoryError, and an OSError that names a file are raised unchanged.
    """
    try:
        yield
    except (InputError, MemoryError):
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise error if error.filename is not None else explain_os_error(error, path) from None
        raise damaged_file_error(f"not a valid {noun}: {one_line(error, 200) or type(error).__name__}", path) from None


def damaged_file_error(what: str, path: Path) -> InputError:
    """Return InputError for a damaged file, or RetryableError in a staging directory."""
    return RetryableError(what, path, _RETRY_HINT) if ".building." in str(path) else InputError(what, path, REBUILD)
