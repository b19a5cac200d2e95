"""Memory of the machine, or of the container that this process runs in."""

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

_LIMIT_FILES = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))  # cgroups 2, 1


def memory_bytes(limit_files: Sequence[Path] = _LIMIT_FILES) -> int:
    """Return the number of bytes of memory that all processes may use together.

    `limit_files` contain the limit of a container; a missing file, or the text `max`, means no limit.
    """
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for file in limit_files:
        with contextlib.suppress(OSError, ValueError):
            total = min(total, int(file.read_text()))
    return total
