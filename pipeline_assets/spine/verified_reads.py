"""Verification of the files that a build reads.

Input files are hashed, so that no flipped bit reaches an output under a valid digest. A file with random access is
hashed before it is read (`expect_hash`). A file that is read from beginning to end is hashed by the process that reads
it (`hash_while_reading`), or after the build if it was not read to its end (`verify_reads`).
"""

import contextlib
import hashlib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from pipeline_assets.spine.disk_errors import read_error_text
from pipeline_assets.spine.errors import ChangedFileError, InputError, RetryableError
from pipeline_assets.spine.files import HASHING_THREADS, file_sha256


class Readable(Protocol):
    """File that is open for reading bytes."""

    def read(self, size: int, /) -> bytes: ...


@dataclass(frozen=True)
class ExpectedHash:
    """Hex sha256 that a file must have, with two texts for error messages.

    `origin_phrase` is the text before the expected hash, such as `sealed with`; `fix` is the advice.
    """

    sha256: str
    origin_phrase: str
    fix: str


@dataclass
class _ReadLog:
    """Files that one build reads: expected hashes by path, and paths verified so far."""

    expected_hashes: dict[str, ExpectedHash] = field(default_factory=dict)
    verified_paths: set[str] = field(default_factory=set)


_read_log: _ReadLog | None = None
_collected_hashes: dict[str, str] | None = None


@contextlib.contextmanager
def verify_reads() -> Iterator[None]:
    """Raise InputError if a file that the block reads does not have its expected hash.

    A file that was not read completely is hashed at the end of the block. If the block itself raises an InputError, no
    more files are hashed. After any other error they are hashed; if one has changed, InputError replaces that error.
    """
    global _read_log
    former, _read_log = _read_log, _ReadLog()
    try:
        yield
        _check_unread(_read_log)
    except InputError:
        raise
    except Exception:
        _check_unread(_read_log)
        raise
    finally:
        _read_log = former


def _check_unread(log: _ReadLog) -> None:
    """Hash the files that were not read to the end; InputError if one changed."""
    unread = [path for path in log.expected_hashes if path not in log.verified_paths]
    with ThreadPoolExecutor(HASHING_THREADS) as pool:
        for path, sha256 in zip(unread, pool.map(_sha256, unread), strict=True):
            check_hashes({path: sha256})


@contextlib.contextmanager
def collect_hashes() -> Iterator[dict[str, str]]:
    """Collect, by path, the hash of each file that the block reads completely."""
    global _collected_hashes
    former, _collected_hashes = _collected_hashes, {}
    try:
        yield _collected_hashes
    finally:
        _collected_hashes = former


def expect_hash(path: Path, expected: ExpectedHash, is_streamed: bool) -> None:
    """Register the expected hash of a file that a block of `verify_reads` reads.

    Readers of a streamed file hash it while they read. Any other file is hashed here; a wrong hash raises
    ChangedFileError, and an unreadable file RetryableError. Outside a block, do nothing.
    """
    if _read_log is not None:
        _read_log.expected_hashes[str(path)] = expected
        if not is_streamed and str(path) not in _read_log.verified_paths:
            check_hashes({str(path): _sha256(str(path))})


def expected_sha256(path: Path) -> str | None:
    """Return the sha256 that `verify_reads` expects a file to have; None without one."""
    expected = None if _read_log is None else _read_log.expected_hashes.get(str(path))
    return None if expected is None else expected.sha256


def check_hashes(reads: Mapping[str, str]) -> None:
    """Compare hashes by path with the expected ones; ChangedFileError if any differs."""
    if _read_log is None:
        return
    for path, sha256 in reads.items():
        expected = _read_log.expected_hashes.get(path)
        if expected is not None and sha256 != expected.sha256:
            what = f"sha256 is {sha256}, {expected.origin_phrase} {expected.sha256}"
            raise ChangedFileError(what, path, expected.fix)
        _read_log.verified_paths.add(path)


def _sha256(path: str) -> str:
    try:
        return file_sha256(Path(path))
    except OSError as error:
        raise RetryableError(read_error_text(error), path, "restore the file, then run the same command") from None


def hash_while_reading(file: Readable, path: Path) -> Readable:
    """Return a reader of `file` that checks or collects the file's hash at its end.

    `file` must be positioned at its start. Outside blocks of `verify_reads` and `collect_hashes`, return `file` itself.
    """
    return file if _read_log is None and _collected_hashes is None else _HashingReader(file, path)


class _HashingReader:
    """Reader that hashes a file, and at the file's end collects or checks the hash."""

    def __init__(self, file: Readable, path: Path) -> None:
        self._file, self._path = file, path
        self._hash = hashlib.sha256()

    def read(self, size: int, /) -> bytes:
        data = self._file.read(size)
        self._hash.update(data)
        if not data:
            hashes = {str(self._path): self._hash.hexdigest()}
            if _collected_hashes is None:
                check_hashes(hashes)
            else:
                _collected_hashes.update(hashes)
        return data
