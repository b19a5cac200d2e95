"""What a process takes of its machine: memory, CPU time and disk."""

import contextlib
import gc
import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

_US = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
_MAXRSS_BYTES = 1 if sys.platform == "darwin" else 1024  # getrusage(2) counts bytes there, KiB elsewhere
_forked_maxrss, _forked_cpu_s = 0, 0.0


def count_forked(maxrss: int, cpu_s: float) -> None:
    """Note what a worker took that the fork server waited for; `getrusage` here leaves it out."""
    global _forked_maxrss, _forked_cpu_s
    _forked_maxrss, _forked_cpu_s = max(maxrss, _forked_maxrss), _forked_cpu_s + cpu_s


def forget_forked_cpu() -> None:
    """Leave out what workers of the fork server took: the server has ended, so that `getrusage` here has it."""
    global _forked_cpu_s
    _forked_cpu_s = 0.0


def peak_memory_bytes() -> int:
    """Return the largest resident set that this process, or one of its children that ended, has had since its start.

    It is that of one process, memory shared with others included, and the largest so far: of several builds in one
    process, a later one never shows less than an earlier one. A program that replaced another process (`exec`), as
    `subprocess` and spawned workers do, begins with what that one had.
    """
    return _MAXRSS_BYTES * max(_forked_maxrss, *(resource.getrusage(who).ru_maxrss for who in _US))


def resident_bytes() -> int:
    """Bytes of this process that are in memory, shared ones included; 0 where the system doesn't tell."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    return 0


def cpu_seconds() -> float:
    """CPU time of this process, its children that ended, and workers that the fork server waited for."""
    ours = (resource.getrusage(who) for who in _US)
    return _forked_cpu_s + sum(used.ru_utime + used.ru_stime for used in ours)


def folder_bytes(folder: Path) -> int:
    """Bytes of all files below a folder, one with several names counted once; 0 where there is no such folder."""
    files: dict[tuple[int, int], int] = {}
    for path, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # a live builder renames
                status = os.lstat(os.path.join(path, name))
                files[status.st_dev, status.st_ino] = status.st_size
    return sum(files.values())


@contextlib.contextmanager
def pause_gc() -> Iterator[None]:
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
