"""Panics of Rust libraries, which no `except Exception` sees."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator

_STDERR = 2


def panics(call: Callable[[], object]) -> bool:
    """Whether a call into a Rust library panics.

    The library's panic hook writes its message, and where RUST_BACKTRACE is set a backtrace, to the file descriptor of
    stderr before Python sees an exception, which is no `Exception`. Nothing in the library turns the hook off, so the
    descriptor leads nowhere during the call: what another thread of this process writes there meanwhile is lost.
    """
    with _without_stderr():
        try:
            call()
        except BaseException as error:
            if type(error).__name__ != "PanicException":
                raise
            return True
    return False


@contextlib.contextmanager
def _without_stderr() -> Iterator[None]:
    try:
        kept = os.dup(_STDERR)
    except OSError:  # there is none
        yield
        return
    if sys.stderr is not None:
        sys.stderr.flush()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, _STDERR)
        yield
    finally:
        os.dup2(kept, _STDERR)
        os.close(nowhere)
        os.close(kept)
