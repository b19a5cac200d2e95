"""Resource usage of a process: memory, CPU time and disk."""

import contextlib
import gc
import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

_US = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
_MAXRSS_BYTES = 1 if sys.platform == "darwin" else 1024  # getrusage(2) counts bytes on macOS, KiB on Linux
_forked_maxrss, _forked_cpu_s = 0, 0.0


def count_forked(maxrss: int, cpu_s: float) -> None:
    """Add the usage of a worker that the fork server waited for.

    `getrusage` in this process does not include this worker.
    """
    global _forked_maxrss, _forked_cpu_s
    _forked_maxrss, _forked_cpu_s = max(maxrss, _forked_maxrss), _forked_cpu_s + cpu_s


def forget_forked_cpu() -> None:
    """Reset the CPU time of forked workers.

    Called after the server has ended, because `getrusage` in this process then includes that time.
    """
    global _forked_cpu_s
    _forked_cpu_s = 0.0


def peak_memory_bytes() -> int:
    """Return the largest resident set of this process or an ended child so far.

    It is the value of one process, shared memory included. In a process with several builds, a later value is never
    smaller than an earlier one. After `exec`, as in `subprocess` and spawned workers, a program starts with the value
    of its predecessor.
    """
    return _MAXRSS_BYTES * max(_forked_maxrss, *(resource.getrusage(who).ru_maxrss for who in _US))


def resident_bytes() -> int:
    """Return the resident memory of this process, shared memory included.

    0 if the system does not report it.
    """
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    return 0


def cpu_seconds() -> float:
    """Return the CPU time of this process, its ended children and forked workers."""
    ours = (resource.getrusage(who) for who in _US)
    return _forked_cpu_s + sum(used.ru_utime + used.ru_stime for used in ours)


def folder_bytes(folder: Path) -> int:
    """Return the size of all files below a folder, hard links counted once.

    0 if it does not exist.
    """
    files: dict[tuple[int, int], int] = {}
    for path, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # a live builder may rename files
                status = os.lstat(os.path.join(path, name))
                files[status.st_dev, status.st_ino] = status.st_size
    return sum(files.values())


@contextlib.contextmanager
def pause_gc() -> Iterator[None]:
    """Disable the garbage collector in the block.

    Rows are trees, which reference counting frees. Scanning them again and again takes a twelfth of the time and finds
    nothing. Code that creates many objects calls `gc.collect(0)`.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
