"""Commands that stay in the middle of their work until a test stops them."""

import time
from pathlib import Path
from subprocess import Popen

PATIENCE_S = 60.0


def hold_at(part: str, mark: Path | None = None) -> dict[str, str]:
    """Return variables that hold a command where it renames a file to a path that contains `part`.

    Args:
        mark: file that the first such rename creates; it passes, so that one shard of a stage is finished.
    """
    return {"HELD_RENAMES": part, **({} if mark is None else {"HELD_AFTER": str(mark)})}


def wait_for(process: Popen[str], root: Path, pattern: str) -> None:
    """Wait until the held command has written a path below the root that has this pattern."""
    deadline = time.monotonic() + PATIENCE_S
    while not any(root.glob(pattern)):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, f"no {pattern} below {root}"
        time.sleep(0.005)
