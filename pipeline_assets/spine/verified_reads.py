"""Verification of the files that a build reads.

No flipped bit of an input may reach an output under a valid digest. A file that a build reads from beginning to end is
hashed by the process that reads it (`hash_while_reading`). A file with random access is hashed before (`expect_hash`).
A file that was read in part is hashed at the end of the build (`verify_reads`).
"""

import contextlib
import hashlib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pipeline_assets.spine.errors import InputError, RetryableError
from pipeline_assets.spine.files import file_sha256, read_error_text

_THREADS = 4  # hashing releases the interpreter lock


class Readable(Protocol):
    """Open file."""

    def read(self, size: int, /) -> bytes:
        """Return the next bytes, `size` at most; empty at the end."""


@dataclass(frozen=True)
class ExpectedHash:
    """Hash that a file must have.

    Attributes:
        sha256: In hex.
        expected_by: Origin of the hash in messages, such as `sealed with`.
        fix: Fix in the message about another hash.
    """

    sha256: str
    expected_by: str
    fix: str


class _ReadLog:
    """Files that one build reads: their expected hashes, and those verified so far."""

    def __init__(self) -> None:
        self.promises: dict[str, ExpectedHash] = {}
        self.kept: set[str] = set()


_log: _ReadLog | None = None
_gathered: dict[str, str] | None = None


@contextlib.contextmanager
def verify_reads() -> Iterator[None]:
    """Run the block as a build in this process, and verify the files that it reads.

    Files with an expected hash that were not read whole are hashed at the end.

    Raises:
        InputError: A file has another hash or is missing.
    """
    global _log
    former, _log = _log, (log := _ReadLog())
    try:
        yield
        unread = [path for path in log.promises if path not in log.kept]
        with ThreadPoolExecutor(_THREADS) as pool:
            for path, sha256 in zip(unread, pool.map(_sha256, unread), strict=True):
                check_hashes({path: sha256})
    finally:
        _log = former


@contextlib.contextmanager
def collect_hashes() -> Iterator[dict[str, str]]:
    """Collect the hash of each file that the block reads completely, by path.

    A worker stores these hashes in the receipt of its shard.
    """
    global _gathered
    former, _gathered = _gathered, {}
    try:
        yield _gathered
    finally:
        _gathered = former


def expect_hash(path: Path, promise: ExpectedHash, is_streamed: bool) -> None:
    """Register a file that the build in this process reads, with its expected hash.

    Readers of a streamed file hash it while they read; any other file is hashed here.

    Raises:
        InputError: The file has another hash.
    """
    if _log is not None:
        _log.promises[str(path)] = promise
        if not is_streamed and str(path) not in _log.kept:
            check_hashes({str(path): _sha256(str(path))})


def check_hashes(reads: Mapping[str, str]) -> None:
    """Compare hashes of files that were read whole with their expected hashes.

    Raises:
        InputError: A file has another hash.
    """
    if _log is None:
        return
    for path, sha256 in reads.items():
        promise = _log.promises.get(path)
        if promise is not None and sha256 != promise.sha256:
            raise InputError(f"sha256 is {sha256}, {promise.expected_by} {promise.sha256}", path, promise.fix)
        _log.kept.add(path)


def _sha256(path: str) -> str:
    try:
        return file_sha256(Path(path))
    except OSError as error:
        raise RetryableError(read_error_text(error), path, "restore the file, then run the same command") from None


def hash_while_reading(file: Readable, path: Path) -> Readable:
    """Wrap an open file, at its beginning, so that reading it to its end hashes it.

    Outside a build the file is returned as it is.
    """
    return file if _log is None and _gathered is None else _Hashed(file, path)


class _Hashed:
    """File that reports its hash when its end was read."""

    def __init__(self, file: Readable, path: Path) -> None:
        self._file, self._path = file, path
        self._hash = hashlib.sha256()

    def read(self, size: int, /) -> bytes:
        data = self._file.read(size)
        self._hash.update(data)
        if not data:
            hashes = {str(self._path): self._hash.hexdigest()}
            if _gathered is None:
                check_hashes(hashes)
            else:
                _gathered.update(hashes)
        return data
