"""Pause of a command before a chosen rename."""

import os
import time
from pathlib import Path
from typing import Any

HOLD_S = 600.0


class Hold:
    """Audit hook that delays renames to a path that contains `part`.

    Args:
        mark: with it, the first such rename passes, and its process creates this file.
        until: with it, the hold ends when this file exists.
    """

    def __init__(self, part: str, mark: Path | None, until: Path | None) -> None:
        self._part, self._mark, self._until = part, mark, until

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "os.rename" and self._part in os.fsdecode(arguments[1]) and not self._is_first():
            end = time.monotonic() + HOLD_S
            while time.monotonic() < end and not (self._until is not None and self._until.exists()):
                time.sleep(0.005)

    def _is_first(self) -> bool:
        if self._mark is None:
            return False
        try:
            os.close(os.open(self._mark, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True
