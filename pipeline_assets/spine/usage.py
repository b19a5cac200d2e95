"""Resource usage of a process: memory, CPU time and disk."""

import contextlib
import os
import resource
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

_forked_maxrss, _forked_cpu_s = 0, 0.0  # of ended forked workers, whose parent is the fork server
_OWN_USAGES = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
_MAXRSS_UNIT_BYTES = 1 if sys.platform == "darwin" else 1024  # getrusage(2) counts bytes on macOS, KiB on Linux


def peak_memory_bytes() -> int:
    """Return the largest peak resident memory of this process and its ended children.

    The value includes shared memory and never falls, even when another build begins. A program that is started by
    `exec`, as in `subprocess`, begins with the value of its parent.
    """
    return _MAXRSS_UNIT_BYTES * max(_forked_maxrss, *(resource.getrusage(who).ru_maxrss for who in _OWN_USAGES))


def resident_bytes() -> int:
    """Return this process's resident memory, shared memory included; 0 if unknown."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    return 0


def cpu_seconds() -> float:
    """Return the CPU time of this process, of ended children and of forked workers."""
    usages = (resource.getrusage(who) for who in _OWN_USAGES)
    return _forked_cpu_s + sum(usage.ru_utime + usage.ru_stime for usage in usages)


def add_forked_usage(maxrss: int, cpu_s: float) -> None:
    """Add the CPU seconds of an ended forked worker; keep the largest `ru_maxrss`."""
    global _forked_maxrss, _forked_cpu_s
    _forked_maxrss, _forked_cpu_s = max(maxrss, _forked_maxrss), _forked_cpu_s + cpu_s


def reset_forked_cpu() -> None:
    """Reset the CPU seconds of forked workers, after the fork server has ended.

    `getrusage` in this process then includes these seconds, so they would count twice.
    """
    global _forked_cpu_s
    _forked_cpu_s = 0.0


def nearest_existing(path: Path) -> Path:
    """Return the path, or its nearest existing parent, which is on the same disk."""
    return next(place for place in (path, *path.absolute().parents) if place.exists())


def folder_bytes(folder: Path) -> int:
    """Return the size of a folder's files, hard links counted once; 0 if missing."""
    return sum({(file.st_dev, file.st_ino): file.st_size for file in _file_statuses(folder).values()}.values())


def reclaimable_bytes(folders: Iterable[Path]) -> int:
    """Return the bytes freed by removing folders, excluding files linked elsewhere."""
    files = {path: file for folder in folders for path, file in _file_statuses(folder).items()}.values()
    links = Counter((file.st_dev, file.st_ino, file.st_size, file.st_nlink) for file in files)
    return sum(size for (_, _, size, all_links), found in links.items() if found == all_links)


def _file_statuses(folder: Path) -> dict[str, os.stat_result]:
    files: dict[str, os.stat_result] = {}
    for path, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # a live builder may rename files
                files[os.path.join(path, name)] = os.lstat(os.path.join(path, name))
    return files
