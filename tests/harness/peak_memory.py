"""Peak memory of this process from /proc, since `ru_maxrss` includes the parent."""

import contextlib
from pathlib import Path


def own_peak_mib() -> float:
    """Return the largest resident set since the start, or since `forget_peak`."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


def forget_peak() -> None:
    """Reset the peak to the resident set; some sandboxes do not allow it."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
