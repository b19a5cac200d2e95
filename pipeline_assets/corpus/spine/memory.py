"""Memory of this process, as the system counts it."""

import resource
from pathlib import Path

_STATM = Path("/proc/self/statm")


def resident_bytes() -> int | None:
    """Bytes of this process that are in memory, shared ones included; None where the system doesn't say."""
    try:
        return int(_STATM.read_bytes().split()[1]) * resource.getpagesize()
    except OSError:
        return None
