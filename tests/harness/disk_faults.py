"""Faults of a disk, of the clock and of the process, injected into one command.

Operations are counted in files, one byte each, so that forked workers count alike; a fault strikes at the `at`-th
operation of its class. Writes pass the failpoint of `durable` first, so errors and kills strike there and in the system
call behind it. Silent faults of writes change what `os.write` stores. Faults of reads hand out a descriptor of other
bytes: whatever reads it, also a mapping, sees these bytes.
"""

import builtins
import errno
import importlib
import io
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from crash_points import Death, Victim
from forgery import flip
from forked_workers import forked_here

from pipeline_assets.spine import durable


class DiskFault(StrEnum):
    """Fault by name. The first three are silent: the disk reports success."""

    TORN_WRITE = "torn write"
    LOST_WRITE = "lost write"
    MISDIRECTED_WRITE = "misdirected write"
    STALE_READ = "stale read"
    ROT_ON_READ = "rot on read"
    ENOSPC = "ENOSPC"
    EIO_ON_WRITE = "EIO on write"
    EIO_ON_READ = "EIO on read"
    SLOW_DISK = "slow disk"
    CLOCK_JUMP = "clock jump"
    KILL = "kill"
    POWER_LOSS = "power loss"
    KILL_AND_ROT = "kill and rot"


SILENT_WRITES = (DiskFault.TORN_WRITE, DiskFault.LOST_WRITE, DiskFault.MISDIRECTED_WRITE)
OTHER_READS = (DiskFault.STALE_READ, DiskFault.ROT_ON_READ)
_READS = (*OTHER_READS, DiskFault.EIO_ON_READ)
_FULL_DISK_FAILS = ("create", "write", "append", "mkdir", "link")
_CALLS_AFTER_STEP = {"write", "append", "fsync"}  # the system call behind them reports the error, without a file name
_SECTOR = 512
_SLOW_STEP_S, _SLOW_STEPS = 0.01, 100
_DAY_S = 86_400.0


def operation_class(fault: DiskFault) -> str:
    """Return which operations are counted for a fault: steps, writes or reads."""
    return "writes" if fault in SILENT_WRITES else "reads" if fault in _READS else "steps"


@dataclass
class _Faulty:
    """Single fault in this process and its forks.

    Attributes:
        fault: None only counts.
        at: Operation that is struck, counted from 1.
        folder: Files below it are struck.
        exempt: Folders of files whose content is the user's word: a rotten recipe is another recipe.
        log: Folder of the counts, of former versions and of the file `fired`.
    """

    fault: DiskFault | None
    at: int
    folder: str
    exempt: tuple[str, ...]
    log: Path
    _failing: int = 0
    _slow: int = 0
    _unsynced: set[int] = field(default_factory=set)

    def step(self, kind: durable.Operation, path: Path) -> None:
        number = self._count("steps")
        if kind in ("rename", "exchange"):
            self._keep_former(path)
        if self.fault is None or operation_class(self.fault) != "steps" or number < self.at:
            return
        match self.fault:
            case DiskFault.KILL | DiskFault.POWER_LOSS | DiskFault.KILL_AND_ROT:
                self._fire(f"before {kind} of {path}")
                if self.fault is DiskFault.KILL_AND_ROT:
                    self._rot_unfinished_work()
                if self.fault is DiskFault.POWER_LOSS:
                    self._lose_unsynced_bytes()
                Death(1, Victim.ALL, self.log / "death")(kind, path)
            case DiskFault.ENOSPC if kind in _FULL_DISK_FAILS:
                self._fail(errno.ENOSPC, kind, path)
            case DiskFault.EIO_ON_WRITE if not (self.log / "fired").exists():
                self._fail(errno.EIO, kind, path)
            case DiskFault.SLOW_DISK if self._slow < _SLOW_STEPS:
                self._fire(f"from {kind} of {path}")
                self._slow += 1
                time.sleep(_SLOW_STEP_S)
            case DiskFault.CLOCK_JUMP:
                self._fire(f"before {kind} of {path}")

    def _rot_unfinished_work(self) -> None:
        """Flip a bit in one file of an unfinished build, in a work file if it has one."""
        unfinished = [path for path in Path(self.folder).rglob("*") if ".building." in str(path) and path.is_file()]
        files = sorted(path for path in unfinished if path.stat().st_size and path.stat().st_nlink == 1)
        if files := [path for path in files if ".work" in path.parts] or files:
            flip(files[self.at % len(files)])

    def _lose_unsynced_bytes(self) -> None:
        """Zero unsynced files of this process; `power_loss` simulates lost names."""
        for path in Path(self.folder).rglob("*"):
            status = path.lstat()
            if status.st_ino in self._unsynced and path.is_file():
                with _OPEN(path, "r+b") as file:
                    file.write(bytes(status.st_size))

    def synced(self, descriptor: int) -> None:
        self._unsynced.discard(os.fstat(descriptor).st_ino)

    def _fail(self, number: int, kind: durable.Operation, path: Path) -> None:
        self._fire(f"{kind} of {path}")
        if kind not in _CALLS_AFTER_STEP:
            raise OSError(number, os.strerror(number), str(path))
        self._failing = number

    def raise_if_failing(self) -> None:
        if self._failing:
            number, self._failing = self._failing, 0
            raise OSError(number, os.strerror(number))

    def now(self, clock: Callable[[], float]) -> float:
        """Return the time, days away after the jump."""
        is_past = self.fault is DiskFault.CLOCK_JUMP and (self.log / "fired").exists()
        return clock() + ((-1, 1)[self.at % 2] * (0.05, 2, 400)[self.at % 3] * _DAY_S if is_past else 0)

    def write(self, descriptor: int, data: Any, write: Callable[[int, Any], int]) -> int:
        """Write as a broken disk does, and report all bytes as written."""
        self.raise_if_failing()
        path = self._watched(os.readlink(f"/proc/self/fd/{descriptor}"))
        if self.fault is DiskFault.POWER_LOSS and path is not None:
            self._unsynced.add(os.fstat(descriptor).st_ino)
        if path is None or self._count("writes") != self.at or self.fault not in SILENT_WRITES:
            return write(descriptor, data)
        view = memoryview(data).cast("B")
        torn = min(len(view) // 2, _SECTOR) if self.fault is DiskFault.TORN_WRITE else 0
        self._fire(f"{torn} of {len(view)} bytes of {path} were written")
        if self.fault is DiskFault.MISDIRECTED_WRITE:
            self._overwrite_sibling(Path(path), view)
        written = write(descriptor, view[:torn]) if torn else 0
        end = os.lseek(descriptor, len(view) - written, os.SEEK_CUR)
        if os.fstat(descriptor).st_size < end:
            os.ftruncate(descriptor, end)
        return len(view)

    def _overwrite_sibling(self, path: Path, data: memoryview) -> None:
        """Overwrite the start of the largest sibling in a staging directory."""
        siblings = [
            other
            for other in path.parent.iterdir()
            if other != path and other.is_file() and other.stat().st_nlink == 1 and ".building." in str(other)
        ]
        victim = max(siblings, key=lambda other: (other.stat().st_size, other.name), default=None)
        if victim is not None:
            with _OPEN(victim, "r+b") as file:
                file.write(data[: victim.stat().st_size])

    def other_bytes(self, path: Any) -> str | None:
        """Return the path of other bytes if this read is struck, else None."""
        watched = None if isinstance(path, int) else self._watched(path)
        if watched is None or not os.path.isfile(watched) or not os.path.getsize(watched):
            return None
        if self._count("reads") != self.at or self.fault not in _READS:
            return None
        self._fire(watched)
        if self.fault is DiskFault.EIO_ON_READ:
            raise OSError(errno.EIO, os.strerror(errno.EIO), watched)
        data = _read(watched)
        former = self.log / "former" / watched.replace("/", "%")
        if self.fault is DiskFault.ROT_ON_READ:
            bit = self.at * 7919 % (8 * len(data))
            data = data[: bit // 8] + bytes([data[bit // 8] ^ 1 << bit % 8]) + data[bit // 8 + 1 :]
        else:  # a cache of the network has the former file, or the first half of a new one
            data = _read(former) if former.exists() else data[: len(data) // 2]
        descriptor, name = tempfile.mkstemp(dir=self.log)
        os.write(descriptor, data)
        os.close(descriptor)
        return name

    def _keep_former(self, target: Path) -> None:
        for file in [target] if target.is_file() else target.glob("manifest.json"):
            former = self.log / "former" / str(file).replace("/", "%")
            former.parent.mkdir(exist_ok=True)
            former.write_bytes(_read(file))

    def _watched(self, path: Any) -> str | None:
        """Return the absolute path of a file that may be struck, else None."""
        name = os.path.abspath(os.fsdecode(path))
        # No hash protects a check record: a reader takes an unreadable one for missing.
        unprotected = (".lock", ".checks.json") if self.fault in OTHER_READS else (".lock",)
        is_exempt = name.endswith(unprotected) or name.startswith((*self.exempt, str(self.log)))
        return None if is_exempt or not name.startswith(self.folder) else name

    def _count(self, name: str) -> int:
        """Return the operation's number: where its byte ends in the file of its class."""
        descriptor = _OS_OPEN(self.log / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            _OS_WRITE(descriptor, b".")
            return os.lseek(descriptor, 0, os.SEEK_CUR)
        finally:
            os.close(descriptor)

    def _fire(self, what: str) -> None:
        if not (self.log / "fired").exists():
            descriptor = _OS_OPEN(self.log / "fired", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            _OS_WRITE(descriptor, f"{self.fault}: {what}\n".encode())
            os.close(descriptor)


_OPEN, _OS_OPEN, _OS_WRITE, _OS_PWRITE, _OS_FSYNC, _TIME = io.open, os.open, os.write, os.pwrite, os.fsync, time.time


def _read(path: str | Path) -> bytes:
    with _OPEN(path, "rb") as file:
        return bytes(file.read())


def arm(
    fault: str | None,
    at: int,
    folder: str,
    exempt: list[str],
    log: str,
    boots: int = 0,
    workers: bool = False,
    bug: str | None = None,
) -> None:
    """Put a fault into this process until it ends.

    Args:
        boots: How often the machine has started again.
        workers: Whether small inputs, too, are built by forked workers.
        bug: Function `module:name` that breaks the program.
    """
    faulty = _Faulty(DiskFault(fault) if fault else None, at, folder, tuple(exempt), Path(log))
    durable.failpoint = faulty.step
    _patch_writes(faulty)
    _patch_reads(faulty)
    time.time = lambda: faulty.now(_TIME)
    if boots:
        durable.boot_id = lambda: f"boot {boots}"
    if workers:
        from pipeline_assets.build import run

        run._MIN_PARALLEL_BYTES = 0
        forked_here().__enter__()
    if bug:
        module, _, name = bug.partition(":")
        getattr(importlib.import_module(module), name)()


def _patch_writes(faulty: _Faulty) -> None:
    def pwrite(descriptor: int, data: Any, offset: int) -> int:
        faulty.raise_if_failing()
        return _OS_PWRITE(descriptor, data, offset)

    def fsync(descriptor: int) -> None:
        faulty.raise_if_failing()
        _OS_FSYNC(descriptor)
        faulty.synced(descriptor)

    changes: dict[str, Callable[..., Any]] = {
        "write": lambda descriptor, data: faulty.write(descriptor, data, _OS_WRITE),
        "pwrite": pwrite,
        "fsync": fsync,
    }
    for name, function in changes.items():
        setattr(os, name, function)


def _patch_reads(faulty: _Faulty) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    file_io, map_file, parquet = io.FileIO, pa.memory_map, pq.ParquetFile

    def opened(file: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        is_read = not set(mode) & set("wax+") and options.get("opener") is None
        return _OPEN((faulty.other_bytes(file) if is_read else None) or file, mode, *arguments, **options)

    def os_opened(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        whole = path if dir_fd is None else os.path.join(os.readlink(f"/proc/self/fd/{dir_fd}"), os.fsdecode(path))
        is_read = not flags & (os.O_WRONLY | os.O_RDWR | os.O_DIRECTORY | os.O_CREAT)
        other = faulty.other_bytes(whole) if is_read else None
        return _OS_OPEN(path, flags, mode, dir_fd=dir_fd) if other is None else _OS_OPEN(other, flags)

    class FaultyFileIO(file_io):
        def __init__(self, file: Any, mode: str = "r", *arguments: Any, **options: Any) -> None:
            super().__init__(faulty.other_bytes(file) or file, mode, *arguments, **options)

    class FaultyParquet(parquet):
        def __init__(self, source: Any, *arguments: Any, **options: Any) -> None:
            is_path = isinstance(source, str | os.PathLike)
            super().__init__((is_path and faulty.other_bytes(source)) or source, *arguments, **options)

    builtins.open = opened
    io.open = opened
    io.FileIO = FaultyFileIO
    os.open = os_opened
    pa.memory_map = lambda path, mode="r": map_file(faulty.other_bytes(path) or path, mode)
    pq.ParquetFile = FaultyParquet
