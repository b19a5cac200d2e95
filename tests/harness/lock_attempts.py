"""Attempts to lock a target by this process or by another user."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline_assets.spine.lock import locked

NO_PROCESS = 2**22 + 1  # above all process ids


def check_as_other_user(folder: Path, claim: Callable[[], bool]) -> bool:
    """Check whether a claim is true for another user, who may enter the folder."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    for parent in (folder, *folder.parents):
        parent.chmod(parent.stat().st_mode | 0o011)
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            os._exit(0 if claim() else 1)
        except PermissionError:
            os._exit(1)
        finally:
            os._exit(2)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code != 2, "the claim raised another error"
    return code == 0


def next_fence(target: Path) -> int:
    with locked(target) as lock:
        return lock.fence
