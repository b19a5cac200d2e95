"""Mount options of NFS and Lustre that limit locks to processes of one machine."""

import os
from pathlib import Path

from pipeline_assets.spine.errors import RetryableError
from pipeline_assets.spine.usage import nearest_existing

_MOUNTINFO = Path("/proc/self/mountinfo")
_LOCAL_OPTIONS = ("nolock", "local_lock=flock", "local_lock=all", "localflock")


def mounts_for(root: Path, mountinfo: Path = _MOUNTINFO) -> list[tuple[str, list[str]]]:
    """Return (file system type, options) for each mount of the disk that has `root`.

    If `root` does not exist, its nearest existing parent is used. Without /proc, the list is empty.
    """
    disk = nearest_existing(root).stat().st_dev
    number = f"{os.major(disk)}:{os.minor(disk)}"
    lines = mountinfo.read_text(encoding="utf-8", errors="replace").splitlines() if mountinfo.exists() else []
    # id, parent, major:minor, root, mount point, …, type, device, options
    return [(fields[-3], fields[-1].split(",")) for fields in map(str.split, lines) if fields[2] == number]


def raise_if_locks_are_local(root: Path, mountinfo: Path = _MOUNTINFO) -> None:
    """Raise RetryableError if a mount option limits locks to this machine.

    Without /proc, nothing is checked. Other file systems may limit locks, too, but a client cannot detect that.
    """
    for _, options in mounts_for(root, mountinfo):
        local = next((option for option in _LOCAL_OPTIONS if option in options), None)
        if local is not None:
            what = f"locks exclude only processes of this machine, because of the mount option {local}"
            raise RetryableError(what, root, "mount it without that option, or run without --join")
