"""When Python looks for objects that only refer to each other."""

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def no_cycles() -> Iterator[None]:
    """Python doesn't look while the block runs. Rows are trees, which are freed without: looking through them again and
    again, as they are made, takes a twelfth of the time and finds nothing. Whoever makes much calls `gc.collect(0)`.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
