"""Panics of Rust libraries, which `except Exception` does not catch."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator

_STDERR_FD = 2


def panics(call: Callable[[], object]) -> bool:
    """Check whether a call into a Rust library panics.

    A panic reaches Python as a `PanicException`, a direct subclass of `BaseException`. During the call, all output of
    the process to stderr is lost, because the library's message about a panic cannot be switched off.
    """
    with _discard_stderr():
        try:
            call()
        except BaseException as error:
            if type(error).__name__ != "PanicException":
                raise
            return True
    return False


@contextlib.contextmanager
def _discard_stderr() -> Iterator[None]:
    try:
        saved = os.dup(_STDERR_FD)
    except OSError:  # the process has no stderr
        yield
        return
    if sys.stderr is not None:
        sys.stderr.flush()
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, _STDERR_FD)
        yield
    finally:
        os.dup2(saved, _STDERR_FD)
        os.close(null)
        os.close(saved)
