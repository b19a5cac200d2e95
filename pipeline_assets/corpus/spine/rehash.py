"""Files held against their hashes: read by a few threads, since sha256 lets the others run, and taken up where a former
process stopped.
"""

import base64
import hashlib
import os
import queue
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from pipeline_assets.corpus.spine.hashes import unreadable
from pipeline_assets.corpus.spine.journal import Journal, Key, state_of
from pipeline_assets.corpus.spine.pausable_sha256 import PausableSha256, load_openssl
from pipeline_assets.corpus.spine.progress import Progress

Algorithm = Literal["sha256", "git-sha1"]
_BLOCK_BYTES = 1 << 20
_TICK_BYTES = 16 << 20
_PAUSE_BYTES = 1 << 30  # between two notes of where a large file's hash stands: seconds


@dataclass(frozen=True)
class Claim:
    """Some bytes and the hash that they should have.

    Attributes:
        owner: digest of what claims it: an artifact, a hub file.
        name: the file in its owner.
        paths: where the bytes lie, one file or pieces in order.
        expected: in hex.
        said: how the claim was made: `sealed with`.
    """

    owner: str
    name: str
    paths: tuple[Path, ...]
    bytes: int
    algorithm: Algorithm
    expected: str
    said: str


@dataclass(frozen=True)
class Reading:
    """What came of a claim.

    Attributes:
        actual: the hash that the bytes have; None where they can't be read.
        complaint: None where the bytes are as claimed.
        bytes_read: by this process.
        bytes_before: read by a former one, and not again.
        found_at: when a former process found all of it as claimed, in seconds since 1970; None where this one did.
    """

    claim: Claim
    actual: str | None
    complaint: str | None
    bytes_read: int = 0
    bytes_before: int = 0
    found_at: int | None = None


class _Hash(Protocol):
    def update(self, block: memoryview, /) -> None: ...
    def hexdigest(self) -> str: ...


class _Stopped(Exception):
    """The reading was called off."""


@dataclass(frozen=True)
class _Before:
    """Bytes that a former process read."""

    bytes: int


# From the threads: how many more bytes are done, a finished reading, or what went wrong with the program.
_Answers: TypeAlias = "queue.SimpleQueue[int | _Before | Reading | BaseException]"


def rehash(
    claims: Sequence[Claim], journal: Journal, threads: int, progress: Progress, pause_bytes: int = _PAUSE_BYTES
) -> Iterator[Reading]:
    """A reading of each claim, those known from the journal first, then as they are done; large files are begun first.

    What was damaged is always read again. Closing the iterator calls the rest off.

    Args:
        progress: counts the bytes of all claims as they are read or known.
        pause_bytes: of a file, between two notes of how far it was read: what a crash may cost.
    """
    fresh = []
    for claim in claims:
        known = _known(claim, journal)
        if known is None:
            fresh.append(claim)
        else:
            progress.add_done_before(claim.bytes)
            yield Reading(claim, claim.expected, None, 0, claim.bytes, known)
    fresh.sort(key=lambda claim: -claim.bytes)
    done: _Answers = queue.SimpleQueue()
    stop = threading.Event()
    pool = ThreadPoolExecutor(max(threads, 1))
    try:
        for claim in fresh:
            pool.submit(_read_into, done, claim, journal, stop, pause_bytes)
        left = len(fresh)
        while left:
            match done.get():
                case int(more):
                    progress.add(more, {})
                case _Before(more):
                    progress.add_done_before(more)
                case Reading() as reading:
                    left -= 1
                    yield reading
                case BaseException() as error:
                    raise error
    finally:
        stop.set()
        pool.shutdown(wait=True, cancel_futures=True)


def _known(claim: Claim, journal: Journal) -> int | None:
    """When a former process found the bytes as claimed; None where none did, or the files were touched since."""
    try:
        fact = journal.fact(_key("whole", claim))
    except OSError:
        return None
    return int(fact["at"]) if fact is not None and fact.get("hash") == claim.expected else None


def _key(what: str, claim: Claim) -> Key:
    """All that a hash depends on, as far as can be told without reading."""
    return [what, claim.owner, claim.name, claim.algorithm, [state_of(path) for path in claim.paths]]


def _read_into(done: _Answers, claim: Claim, journal: Journal, stop: threading.Event, pause_bytes: int) -> None:
    try:
        done.put(_Reader(claim, journal, stop, pause_bytes, done).reading())
    except _Stopped:
        return
    except BaseException as error:
        done.put(error)


class _Reader:
    """One claim being read, in one thread."""

    def __init__(self, claim: Claim, journal: Journal, stop: threading.Event, pause_bytes: int, done: _Answers) -> None:
        self._claim, self._journal, self._stop, self._pause_bytes, self._done = claim, journal, stop, pause_bytes, done
        self._bytes_read = self._bytes_before = self._told = 0

    def reading(self) -> Reading:
        claim = self._claim
        try:
            key = _key("whole", claim)
            actual = self._hash(*self._taken_up())
            if actual != claim.expected and self._bytes_read < claim.bytes:
                actual = self._hash(0, _new_hash(claim))  # the note may be wrong, and the file right
            if actual == claim.expected and _key("whole", claim) == key:
                self._journal.note(key, {"hash": actual})
        except OSError as error:
            self._tell(claim.bytes)
            return Reading(claim, None, unreadable(error), self._bytes_read)
        is_right = actual == claim.expected
        complaint = None if is_right else f"{claim.algorithm} is {actual}, {claim.said} {claim.expected}"
        return Reading(claim, actual, complaint, self._bytes_read, self._bytes_before)

    def _hash(self, position: int, digest: _Hash) -> str:
        """The hash of all bytes, of which `digest` has seen those before `position`."""
        self._done.put(_Before(position - self._told))
        self._bytes_before = self._told = noted = position
        for block in _blocks(self._claim.paths, position):
            if self._stop.is_set():
                self._note(position, digest)
                raise _Stopped
            digest.update(block)
            position += len(block)
            self._bytes_read += len(block)
            if position - self._told >= _TICK_BYTES:
                self._tell(position)
            if position - noted >= self._pause_bytes:
                self._note(position, digest)
                noted = position
        self._tell(self._claim.bytes)
        return digest.hexdigest()

    def _note(self, position: int, digest: _Hash) -> None:
        """Where the hash stands, if it is one that can be taken up."""
        if isinstance(digest, PausableSha256):
            state = base64.b64encode(digest.state).decode()
            self._journal.note(_key("part", self._claim), {"read": position, "state": state, "by": digest.library})

    def _tell(self, position: int) -> None:
        if position != self._told:
            self._done.put(position - self._told)
            self._told = position

    def _taken_up(self) -> tuple[int, _Hash]:
        """How much of the claim's bytes a former process hashed, and their hash so far."""
        openssl = load_openssl()
        if self._claim.algorithm != "sha256" or self._claim.bytes <= self._pause_bytes or openssl is None:
            return 0, _new_hash(self._claim)
        fact = self._journal.fact(_key("part", self._claim))
        if fact is None or fact["by"] != openssl.version:
            return 0, PausableSha256(openssl)
        return int(fact["read"]), PausableSha256(openssl, base64.b64decode(fact["state"]))


def _new_hash(claim: Claim) -> _Hash:
    if claim.algorithm == "sha256":
        return hashlib.sha256()
    return hashlib.sha1(b"blob %d\0" % claim.bytes, usedforsecurity=False)


def _blocks(paths: Sequence[Path], offset: int) -> Iterator[memoryview]:
    """The bytes of files, one after the other, from an offset on; each block is overwritten by the next."""
    block = memoryview(bytearray(_BLOCK_BYTES))
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            if offset >= size:
                offset -= size
                continue
            file.seek(offset)
            offset = 0
            while count := file.readinto(block):
                yield block[:count]
