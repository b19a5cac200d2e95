"""Room: what a build needs of the disk and of memory, as far as it is known, held against what is free."""

import contextlib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_MEMORY = "memory"
_MEMINFO = Path("/proc/meminfo")
_MEMORY_LIMIT = Path("/sys/fs/cgroup/memory.max")


@dataclass(frozen=True)
class Room:
    """What is needed at the peak beyond what is taken already, and what is free, in bytes.

    Attributes:
        where: of the disk, a folder on it; of memory, `memory`.
        free: None where the system doesn't tell.
        kept: what stays taken when all is built; None of memory.
    """

    where: str
    needed: float
    free: int | None
    kept: float | None = None

    @property
    def fits(self) -> bool:
        """As far as one can tell."""
        return self.free is None or self.needed <= self.free

    @property
    def fix(self) -> str:
        """What helps where it doesn't fit."""
        return "take fewer workers" if self.where == _MEMORY else "free some, or give another --data"


@dataclass(frozen=True)
class DiskUse:
    """What building one artifact does to a disk, in bytes.

    Attributes:
        fetched: into the cache, where it stays.
        peak: of its building folder.
        sealed: of the finished artifact.
        freed: of what it replaces and of what a crash left: at the end, since two versions lie side by side until the
            new one is sealed.
        adopted: of `freed`, what a crash left of this very artifact and `peak` counts too.
    """

    fetched: float
    peak: float
    sealed: float
    freed: int = 0
    adopted: int = 0


def disk_rooms(uses: Sequence[DiskUse], root: Path, cache: Path) -> list[Room]:
    """What artifacts that are built one after the other need at the worst moment; of two disks where the cache has its
    own.
    """
    is_apart = _device(root) != _device(cache)
    taken = most = 0.0
    for use in uses:
        taken += 0 if is_apart else use.fetched
        most = max(most, taken + use.peak - use.adopted)
        taken += use.sealed - use.freed
    rooms = [Room(str(root), max(most, taken), _free_bytes(root), taken)]
    if is_apart:
        fetched = sum(use.fetched for use in uses)
        rooms.append(Room(str(cache), fetched, _free_bytes(cache), fetched))
    return rooms


def memory_room(needed: float) -> Room:
    """Against what this machine can give now, and this container may have."""
    return Room(_MEMORY, needed, _free_memory())


def _existing(path: Path) -> Path:
    path = path.absolute()
    return next(folder for folder in [path, *path.parents] if folder.exists())


def _device(path: Path) -> int:
    return _existing(path).stat().st_dev


def _free_bytes(path: Path) -> int:
    return shutil.disk_usage(_existing(path)).free


def _free_memory() -> int | None:
    limits = []
    with contextlib.suppress(OSError, ValueError):
        [line] = [line for line in _MEMINFO.read_text().splitlines() if line.startswith("MemAvailable:")]
        limits.append(int(line.split()[1]) * 1024)
    with contextlib.suppress(OSError, ValueError):  # `max` is no number: no limit
        limits.append(int(_MEMORY_LIMIT.read_text()))
    return min(limits, default=None)
