"""Commands paused in the middle of their work until a test resumes them."""

import time
from pathlib import Path
from subprocess import Popen

PATIENCE_S = 60.0


def pause_at(part: str, mark: Path | None = None, until: Path | None = None) -> dict[str, str]:
    """Return variables that pause a command before renames to a path with `part`.

    Args:
        mark: file that the first such rename creates; it passes, so that one shard of a stage is finished.
        until: file that ends the hold.
    """
    files = {"HELD_AFTER": mark, "HELD_UNTIL": until}
    return {"HELD_RENAMES": part, **{name: str(file) for name, file in files.items() if file is not None}}


def find(root: Path, pattern: str) -> list[Path]:
    """Return the paths that match a pattern; none if a folder vanishes meanwhile."""
    try:
        return [*root.glob(pattern)]
    except FileNotFoundError:  # a build has renamed its staging directory
        return []


def wait_for(process: Popen[str], root: Path, pattern: str, count: int = 1) -> None:
    """Wait until the paused command has written paths that match a pattern."""
    deadline = time.monotonic() + PATIENCE_S
    while len(find(root, pattern)) < count:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, f"no {pattern} below {root}"
        time.sleep(0.005)


def wait_for_lock(process: Popen[str]) -> None:
    """Wait until the command has ended, or waits for a lock that another process has."""
    deadline = time.monotonic() + PATIENCE_S
    while process.poll() is None:
        waiting = [line.split() for line in Path("/proc/locks").read_text().splitlines() if "->" in line]
        if str(process.pid) in {words[5] for words in waiting}:
            return
        assert time.monotonic() < deadline, "the command neither ends nor waits"
        time.sleep(0.005)
