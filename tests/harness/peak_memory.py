"""Peak memory of this process, from /proc: `ru_maxrss` begins with that of the process that forked it."""

import contextlib
from pathlib import Path


def own_peak_mib() -> float:
    """The largest resident set since the process began, or since `forget_peak`."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


def forget_peak() -> None:
    """Begin again with what is resident now; where a sandbox refuses this, the earlier peak stays."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
