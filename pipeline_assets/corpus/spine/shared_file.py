"""A file of a known size that workers write together, each a range of its own; nothing is copied afterwards.

Its receipts are those of the ranges, each with the hash of its range.
"""

import hashlib
import os
import shutil
from pathlib import Path

from pipeline_assets.corpus.spine import durable
from pipeline_assets.corpus.spine.errors import Obstacle, UsageError

_BLOCK_BYTES = 1 << 20


def refuse_beyond_disk(path: Path, size: int, place: Path, what: str, less: str) -> None:
    """
    Args:
        place: the folder to name: that of the file is only where it is built.
        what: takes so many bytes.
        less: how to ask for less of it.
    Raises:
        Obstacle: the disk has no room for a file of so many bytes that isn't there yet.
        UsageError: nor would it have, were it empty.
    """
    disk = shutil.disk_usage(path.parent)
    if not path.exists() and size > disk.free:
        words, fix = f"{what} take {size:,} bytes, and {disk.free:,} are free", "give a folder on a larger disk"
        if size > disk.total:
            raise UsageError(words, place, f"{less}, or {fix}")
        raise Obstacle(words, place, f"free some, {less}, or {fix}")


def reserve(path: Path, size: int) -> None:
    """A file of so many zero bytes under `path`, durable; one that is there stays as it is."""
    if path.exists():
        return
    temporary = path.with_name(path.name + durable.TEMPORARY_SUFFIX)
    durable.step("create", temporary)
    with open(temporary, "wb") as file:
        file.truncate(size)
        durable.step("fsync", temporary)
        os.fsync(file.fileno())
    durable.rename(temporary, path)


def write_range(path: Path, offset: int, data: memoryview) -> None:
    """`data` at its place in the file, durable."""
    durable.step("append", path)
    with open(path, "r+b", buffering=0) as file:
        file.seek(offset)
        left = data.cast("B")
        while left.nbytes:
            left = left[file.write(left) or 0 :]
        durable.step("fsync", path)
        os.fsync(file.fileno())


class SharedFileHash:
    """The sha256 of a file that is written in ranges, taken in as they are finished from its beginning on: nobody waits
    for it in the end.

    Attributes:
        bytes_read: so far.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._hash = hashlib.sha256()
        self._block = memoryview(bytearray(_BLOCK_BYTES))
        self.bytes_read = 0

    @property
    def sha256(self) -> str:
        """Hex digest of what was read so far."""
        return self._hash.hexdigest()

    def read_to(self, stop: int) -> None:
        """Takes in what was written before `stop`. The system needn't keep it in memory any longer: there is better use
        for that, what other ranges are made of.
        """
        start = self.bytes_read
        with open(self._path, "rb", buffering=0) as file:
            file.seek(start)
            while self.bytes_read < stop and (count := file.readinto(self._block[: stop - self.bytes_read])):
                self._hash.update(self._block[:count])
                self.bytes_read += count
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(file.fileno(), start, self.bytes_read - start, os.POSIX_FADV_DONTNEED)
