"""The standard output of a command, where the shell closed it or where it takes nothing."""

import contextlib
import os
import sys
from collections.abc import Iterator

from pipeline_assets.spine.errors import InputError


def open_closed_streams() -> None:
    """Give the streams that the shell closed, as `>&-` does, a file that takes and keeps nothing."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - it stays open
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - it stays open


@contextlib.contextmanager
def writing_output() -> Iterator[None]:
    """Explain an error of the standard output, which has nothing to do with the data root.

    Raises:
        BrokenPipeError: Nobody reads it any more.
        InputError: It can't be written.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        discard_output()
        what = f"it can't be written ({error.strerror})"
        raise InputError(what, "standard output", "send it to another place") from None


def discard_output() -> None:
    """Send what is left of the standard output nowhere, since Python flushes it again when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
