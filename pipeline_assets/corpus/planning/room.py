"""Room: what a build needs of the disk and of memory, held against what is free."""

import contextlib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pipeline_assets.corpus.planning.estimate import Estimate, total

Verdict = Literal["fits", "may not fit", "does not fit"]
_MEMORY = "memory"
_MEMINFO = Path("/proc/meminfo")
_MEMORY_LIMIT = Path("/sys/fs/cgroup/memory.max")
_BASIS = "the artifacts, one after the other"


@dataclass(frozen=True)
class Room:
    """What is needed at the peak beyond what is taken already, and what is free.

    Attributes:
        where: of the disk, a folder on it; of memory, `memory`.
        free: in bytes; None where the system doesn't tell.
        kept: bytes of it that stay taken when all is built.
    """

    where: str
    needed: Estimate
    free: int | None
    kept: Estimate | None = None

    @property
    def verdict(self) -> Verdict:
        if self.free is None or self.needed.high <= self.free:
            return "fits"
        return "may not fit" if self.needed.likely <= self.free else "does not fit"

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

    fetched: Estimate
    peak: Estimate
    sealed: Estimate
    freed: int = 0
    adopted: int = 0


def disk_rooms(uses: Sequence[DiskUse], root: Path, cache: Path) -> list[Room]:
    """What artifacts that are built one after the other need at the worst moment; of two disks where the cache has its
    own.
    """
    is_apart = _device(root) != _device(cache)
    sides = [_peak_and_rest(uses, bound, is_apart) for bound in range(3)]
    (low, low_kept), (likely, kept), (high, high_kept) = sides
    peak = Estimate(low, likely, high, _BASIS).counted()
    rooms = [Room(str(root), peak, _free_bytes(root), Estimate(low_kept, kept, high_kept, _BASIS).counted())]
    if is_apart:
        fetched = total((use.fetched for use in uses), _BASIS)
        rooms.append(Room(str(cache), fetched, _free_bytes(cache), fetched))
    return rooms


def _peak_and_rest(uses: Sequence[DiskUse], bound: int, is_cache_apart: bool) -> tuple[float, float]:
    """Bytes beyond those taken now: the most at one time, and what stays."""
    taken = most = 0.0
    for use in uses:
        taken += 0 if is_cache_apart else use.fetched.bounds[bound]
        most = max(most, taken + use.peak.bounds[bound] - use.adopted)
        taken += use.sealed.bounds[bound] - use.freed
    return most, taken


def memory_room(needed: Estimate) -> Room:
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
