"""What a build takes of its machine: memory and CPU of its processes, bytes in its folder, seconds of its parts."""

import contextlib
import os
import resource
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

WATCH = "peak-memory"  # name of the thread that watches
_EVERY_S = 0.05
_GROWTH = 1.1
_LOOKING_SHARE = 0.04  # of the time: a close look at a process of 500 MB takes 10 ms
_PROCESSES = Path("/proc")


class PeakMemory:
    """Watches the memory of this process and all below it while the block runs.

    Memory that several processes share is counted once: each has its part of it (`Pss` in Linux). That takes long to
    tell, so it is asked when resident memory, which is told at once, has grown by a tenth, and now and then.
    """

    def __init__(self) -> None:
        self._peak: int | None = None
        self._is_over = threading.Event()
        self._watch = threading.Thread(target=self._keep_looking, daemon=True, name=WATCH)

    @property
    def bytes(self) -> int | None:
        """The most at one time, so far; None where the system doesn't tell, as only Linux does."""
        self._look()
        return self._peak

    def __enter__(self) -> Self:
        self._watch.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._watch.join()

    def _keep_looking(self) -> None:
        next_look, seen = 0.0, 0
        while not self._is_over.wait(_EVERY_S):
            resident, now = _total(_resident_bytes), time.monotonic()
            if now >= next_look or resident > _GROWTH * seen:
                self._look()
                seen, looked_s = max(resident, seen), time.monotonic() - now
                next_look = now + looked_s / _LOOKING_SHARE

    def _look(self) -> None:
        held = _total(_held_bytes)
        if held:
            self._peak = max(held, self._peak or 0)


def _total(of_process: Callable[[str], int]) -> int:
    """Over this process and all below it; 0 where the system doesn't tell."""
    return sum(map(of_process, _with_all_below(str(os.getpid()))))


def _with_all_below(process: str) -> Iterator[str]:
    yield process
    for children in (_PROCESSES / process / "task").glob("*/children"):
        with contextlib.suppress(OSError):  # the thread ended meanwhile
            for child in children.read_text().split():
                yield from _with_all_below(child)


def _resident_bytes(process: str) -> int:
    """0 for a process that has just ended."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int((_PROCESSES / process / "statm").read_text().split()[1]) * resource.getpagesize()
    return 0


def _held_bytes(process: str) -> int:
    """0 for a process that has just ended."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in (_PROCESSES / process / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def cpu_seconds() -> float:
    """Of this process and all below it, those that have ended too; 0 where the system doesn't tell."""
    return sum(map(_used_seconds, _with_all_below(str(os.getpid()))))


def _used_seconds(process: str) -> float:
    """With what its children used that it has waited for; 0 for a process that has just ended."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        told = (_PROCESSES / process / "stat").read_text().rpartition(")")[2].split()
        return sum(map(int, told[11:15])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def folder_bytes(folder: Path) -> int:
    """Bytes of all files below a folder, one with several names counted once; 0 where there is no such folder."""
    files: dict[tuple[int, int], int] = {}
    for path, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # a live builder renames
                status = os.lstat(os.path.join(path, name))
                files[status.st_dev, status.st_ino] = status.st_size
    return sum(files.values())


class Laps:
    """Seconds of the parts of a build, one after the other, and what was counted meanwhile.

    Args:
        counter: tells how many of something there have been; bytes fetched, say.
    """

    def __init__(self, counter: Callable[[], int] = lambda: 0) -> None:
        self.seconds: dict[str, float] = {}
        self.counted: dict[str, int] = {}
        self._counter = counter
        self._since, self._before = time.monotonic(), counter()

    def end(self, part: str) -> None:
        """`part` ended now; it began when the part before it ended."""
        now, count = time.monotonic(), self._counter()
        self.seconds[part], self.counted[part] = round(now - self._since, 3), count - self._before
        self._since, self._before = now, count
