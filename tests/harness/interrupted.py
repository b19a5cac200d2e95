"""Interruption of code at a chosen line, to force a race."""

import sys
from collections.abc import Callable, Collection, Mapping
from types import FrameType, ModuleType
from typing import TypeVar

T = TypeVar("T")


def interrupted(
    work: Callable[[], T], modules: Collection[ModuleType], before: Mapping[int, Callable[[], object]]
) -> tuple[T, int]:
    """Run work, interrupt it at some lines, and return its result and line count.

    Args:
        before: Functions by the number of the line that they precede, counted from 1 as lines run.
    """
    files, lines = {module.__file__ for module in modules}, 0

    def trace(frame: FrameType, event: str, argument: object) -> Callable[..., object] | None:
        nonlocal lines
        if frame.f_code.co_filename not in files:
            return None
        if event == "line":
            lines += 1
            if lines in before:
                sys.settrace(None)
                before[lines]()
                sys.settrace(trace)
        return trace

    previous_trace = sys.gettrace()
    sys.settrace(trace)
    try:
        return work(), lines
    finally:
        sys.settrace(previous_trace)
