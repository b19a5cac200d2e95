"""Processes that the locks of a file system exclude: none, one machine's, or all."""

import os
import subprocess
import sys
from pathlib import Path

from pipeline_assets.spine.errors import RetryableError
from pipeline_assets.spine.usage import nearest_existing

FIX = "use a data root whose file system has locks; docs/scale.md lists mount options"
_MOUNTS = Path("/proc/self/mountinfo")
# Mount options of NFS and Lustre by which locks exclude only processes of the same machine.
_LOCAL_OPTIONS = ("nolock", "local_lock=flock", "local_lock=all", "localflock")
_LOCK_AGAIN = "import fcntl, os, sys; fcntl.flock(os.open(sys.argv[1], os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB)"
_probed_disks: set[int] = set()


def raise_if_not_exclusive(descriptor: int, path: Path) -> None:
    """Raise RetryableError if a child process can lock a file that is already locked.

    `descriptor` is open on the locked file. A process probes only the first file of each disk, in about 20 ms.
    """
    disk = os.fstat(descriptor).st_dev
    if disk in _probed_disks:
        return
    child = subprocess.run([sys.executable, "-I", "-S", "-c", _LOCK_AGAIN, path], stderr=subprocess.DEVNULL)
    if child.returncode == 0:
        raise RetryableError("locks have no effect on this file system: two processes got the same one", path, FIX)
    _probed_disks.add(disk)


def mounts_of(root: Path, mounts: Path = _MOUNTS) -> list[tuple[str, list[str]]]:
    """Return (type, options) of each mount of a path's disk; none without /proc.

    The path need not exist.
    """
    disk = nearest_existing(root).stat().st_dev
    number = f"{os.major(disk)}:{os.minor(disk)}"
    lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines() if mounts.exists() else []
    # id, parent, major:minor, root, mount point, …, type, device, options
    return [(fields[-3], fields[-1].split(",")) for fields in map(str.split, lines) if fields[2] == number]


def raise_if_locks_are_local(root: Path, mounts: Path = _MOUNTS) -> None:
    """Raise RetryableError if a mount option keeps the locks of `root` local.

    Without /proc, nothing is checked. Other file systems may keep locks local too, without a sign that a client sees.
    """
    for _, options in mounts_of(root, mounts):
        local = next((option for option in _LOCAL_OPTIONS if option in options), None)
        if local is not None:
            what = f"locks exclude only processes of this machine, because of the mount option {local}"
            raise RetryableError(what, root, "mount it without that option, or run without --join")
