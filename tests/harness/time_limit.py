"""Time limit of a block, by an alarm signal."""

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType


class HangError(BaseException):
    """End of a block that took too long."""


@contextlib.contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """Raise HangError in a block that takes longer than `seconds`."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise HangError

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
