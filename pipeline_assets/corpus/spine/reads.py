"""What a build reads, held against the hashes that its inputs were sealed or listed with, before the build is sealed.

A file that is read from its beginning to its end is hashed as it is read, by the process that reads it: `hashed`. A
file that is looked into anywhere is hashed before: `promise`. One that was read in part is hashed whole in the end, by
`logged`. So no flipped bit of an input travels downstream under a good digest.
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


class _Log:
    """The files that one build reads, by path: what they should be, and which of them are known to be so."""

    def __init__(self) -> None:
        self.promises: dict[str, Promise] = {}
        self.kept: set[str] = set()


_log: _Log | None = None
_gathered: dict[str, str] | None = None


@contextlib.contextmanager
def logged() -> Iterator[None]:
    """The block is a build, in this process. Promised files that nobody read whole are hashed at its end.

    Raises:
        InputError: a file is not as promised, or is gone.
    """
    global _log
    former, _log = _log, (log := _Log())
    try:
        yield
        left = [path for path in log.promises if path not in log.kept]
        with ThreadPoolExecutor(_THREADS) as pool:
            for path, sha256 in zip(left, pool.map(_sha256, left), strict=True):
                refuse_broken({path: sha256})
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
    """From now on the build that is made in this process, if one is, reads a file.

    Args:
        is_streamed: whether its readers hash it as they read it; else it is hashed here.
    Raises:
        InputError: it has another hash.
    """
    if _log is not None:
        _log.promises[str(path)] = promise
        if not is_streamed and str(path) not in _log.kept:
            refuse_broken({str(path): _sha256(str(path))})


def refuse_broken(reads: Mapping[str, str]) -> None:
    """Notes hashes of files that the build in this process, if one is made, read whole, by path.

    Raises:
        InputError: a file is not as promised.
    """
    if _log is None:
        return
    for path, sha256 in reads.items():
        promise = _log.promises.get(path)
        if promise is not None and sha256 != promise.sha256:
            raise InputError(f"sha256 is {sha256}, {promise.said} {promise.sha256}", path, promise.fix)
        _log.kept.add(path)


def _sha256(path: str) -> str:
    try:
        return file_sha256(Path(path))
    except OSError as error:
        raise RetryableError(unreadable(error), path, "give it back, then run the same command") from None


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
