"""Ctrl-C while code is imported, when only the end of the process is worth anything."""

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def ended_by_ctrl_c() -> Iterator[None]:
    """Let Ctrl-C end the process by its signal in a `with` block, unless it has a handler.

    A KeyboardInterrupt during imports shows where in a library it was raised, and pydantic replaces it by an error.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
