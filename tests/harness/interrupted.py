"""Interruption of code at a chosen line, so that a race happens in every run of a test."""

import sys
from collections.abc import Callable, Collection, Mapping
from types import FrameType, ModuleType
from typing import TypeVar

T = TypeVar("T")


def interrupted(
    work: Callable[[], T], modules: Collection[ModuleType], before: Mapping[int, Callable[[], object]]
) -> tuple[T, int]:
    """What the work comes to, and how many lines of the modules it ran.

    Args:
        before: what happens before a line, by its number in the order in which they run, from 1.
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

    outside = sys.gettrace()
    sys.settrace(trace)
    try:
        return work(), lines
    finally:
        sys.settrace(outside)
