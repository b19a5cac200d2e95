"""Ctrl-C during imports, which ends the process at once."""

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def end_on_ctrl_c() -> Iterator[None]:
    """Let Ctrl-C end the process without an exception in a `with` block.

    Nothing changes outside the main thread, or if Ctrl-C has a handler other than Python's. A KeyboardInterrupt in an
    import would show a library's traceback, and pydantic would replace it by an error of its own.
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
