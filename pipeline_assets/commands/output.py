"""Handling of standard output that is closed or cannot be written."""

import contextlib
import os
import sys
from collections.abc import Iterator

from pipeline_assets.spine.errors import InputError


def open_closed_streams() -> None:
    """Open the null device in place of streams that the shell closed (`>&-`)."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - open until the process ends
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - open until the process ends


@contextlib.contextmanager
def writing_output() -> Iterator[None]:
    """Raise InputError if standard output cannot be written.

    BrokenPipeErrors are raised unchanged, and so are OSErrors with a `filename`, which concern another file.
    """
    try:
        yield
    except OSError as error:
        if isinstance(error, BrokenPipeError) or error.filename is not None:
            raise
        discard_output()
        what = f"cannot be written ({error.strerror})"
        raise InputError(what, "standard output", "redirect it to another file or program") from None


def discard_output() -> None:
    """Discard buffered standard output, so that Python does not write it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
