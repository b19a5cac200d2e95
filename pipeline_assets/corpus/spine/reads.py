"""What a build reads, held against the hashes that its inputs were sealed or listed with, before the build is sealed.

A file that is read from its beginning to its end is hashed as it is read, by the process that reads it: `hashed`. A
file that is looked into anywhere is hashed before: `promise`. One that was read in part is hashed whole in the end:
`ReadLog.finish`. So no flipped bit of an input travels downstream under a good digest.
"""

import contextlib
import hashlib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pipeline_assets.corpus.spine.errors import InputError, RetryableError
from pipeline_assets.corpus.spine.files import file_sha256, unreadable

_THREADS = 4  # sha256 lets the others run


class Readable(Protocol):
    """An open file."""

    def read(self, size: int, /) -> bytes:
        """The next bytes, `size` at most; none at the end."""


@dataclass(frozen=True)
class Promise:
    """The hash that a file should have.

    Attributes:
        said: by what it was promised: `sealed with`.
        fix: what to do where the file has another one.
    """

    sha256: str
    said: str
    fix: str


class ReadLog:
    """The files that one build reads, and which of them are known to be as promised."""

    def __init__(self) -> None:
        self._promises: dict[str, Promise] = {}
        self._kept: set[str] = set()

    def promise(self, path: Path, promise: Promise, is_streamed: bool) -> None:
        """From now on the build reads this file.

        Args:
            is_streamed: whether its readers hash it as they read it; else it is hashed here.
        Raises:
            InputError: it has another hash.
        """
        self._promises[str(path)] = promise
        if not is_streamed and str(path) not in self._kept:
            self.take({str(path): _sha256(str(path))})

    def take(self, reads: Mapping[str, str]) -> None:
        """Hashes of files that were read whole, by path.

        Raises:
            InputError: one is not as promised.
        """
        for path, sha256 in reads.items():
            promise = self._promises.get(path)
            if promise is not None and sha256 != promise.sha256:
                raise InputError(f"sha256 is {sha256}, {promise.said} {promise.sha256}", path, promise.fix)
            self._kept.add(path)

    def finish(self) -> None:
        """Hashes every promised file that nobody read whole.

        Raises:
            InputError: one is not as promised, or is gone.
        """
        left = [path for path in self._promises if path not in self._kept]
        with ThreadPoolExecutor(_THREADS) as pool:
            for path, sha256 in zip(left, pool.map(_sha256, left), strict=True):
                self.take({path: sha256})


def _sha256(path: str) -> str:
    try:
        return file_sha256(Path(path))
    except OSError as error:
        raise RetryableError(unreadable(error), path, "give it back, then run the same command") from None


_log: ReadLog | None = None
_gathered: dict[str, str] | None = None


@contextlib.contextmanager
def logged() -> Iterator[ReadLog]:
    """The log of the build that the block makes, in this process."""
    global _log
    former, _log = _log, ReadLog()
    try:
        yield _log
    finally:
        _log = former


@contextlib.contextmanager
def gathered() -> Iterator[dict[str, str]]:
    """The hashes of files that are read whole in the block, by path: what a worker tells of its shard."""
    global _gathered
    former, _gathered = _gathered, {}
    try:
        yield _gathered
    finally:
        _gathered = former


def promise(path: Path, promise: Promise, is_streamed: bool) -> None:
    """As `ReadLog.promise`, of the build that is made in this process; nothing where none is."""
    if _log is not None:
        _log.promise(path, promise, is_streamed)


def refuse_broken(reads: Mapping[str, str]) -> None:
    """As `ReadLog.take`, of the build that is made in this process; nothing where none is."""
    if _log is not None:
        _log.take(reads)


def hashed(file: Readable, path: Path) -> Readable:
    """An open file, at its beginning, that is hashed while a build reads it to its end."""
    return file if _log is None and _gathered is None else _Hashed(file, path)


class _Hashed:
    """A file that notes its hash once its end was read."""

    def __init__(self, file: Readable, path: Path) -> None:
        self._file, self._path = file, path
        self._hash = hashlib.sha256()

    def read(self, size: int, /) -> bytes:
        data = self._file.read(size)
        self._hash.update(data)
        if not data:
            found = {str(self._path): self._hash.hexdigest()}
            if _gathered is None:
                refuse_broken(found)
            else:
                _gathered.update(found)
        return data
