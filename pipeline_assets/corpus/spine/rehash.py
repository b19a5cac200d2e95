"""Files held against their hashes, and the journal of such a long reading.

A few threads read, since hashing lets the others run. A file that a former process found right is not read again; a
file in whose middle that process stopped is read from its beginning.

The journal is a file of JSON lines, only ever appended to. A line is handed to the system as soon as there is a fact,
and made durable every few seconds; `kill -9` loses nothing, a power cut the last seconds. Each line ends with a hash of
its text: one that a crash tore, or of which a bit flipped, counts for nothing.
"""

import fcntl
import hashlib
import itertools
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import msgspec

from pipeline_assets.corpus.spine import durable
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.files import OwnFile, blocks, unreadable
from pipeline_assets.corpus.spine.usage import Progress

_SCHEMA = "corpusmill/journal/2"
_SYNC_EVERY_S = 5.0
_FOR_LINES = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_HASH_BYTES = 32
Key = Sequence[Any]


class _Line(msgspec.Struct):
    """What one line says: the schema of those below it, or a fact."""

    schema: str = ""
    key: str = ""
    fact: dict[str, Any] = {}


_FILE = OwnFile("journal", 1 << 30, "remove it: what was read is read again", _Line)

logger = logging.getLogger("corpusmill")


class Journal:
    """Facts by key, the latest counts; those of former processes are there from the start.

    A key holds all that a fact depends on: of a file its size, time and inode too. A fact is then true of what the key
    names, whoever asks.

    Args:
        path: the file, made if it is not there; None keeps facts for this process only.
        fresh: whether former facts are forgotten.
    Raises:
        OSError: the file can't be written, or another process has it (BlockingIOError).
        InputError: something that is no journal lies in its place.
    """

    def __init__(self, path: Path | None, fresh: bool = False) -> None:
        self.path = path
        self._facts: dict[str, dict[str, Any]] = {}
        self._alone = threading.Lock()
        self._descriptor: int | None = None
        if path is None:
            return
        durable.make_folder(path.parent)
        durable.step("create", path)
        self._descriptor = os.open(path, _FOR_LINES, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if fresh:
                os.ftruncate(self._descriptor, 0)
            self._facts = _read(path)
            durable.fsync_folder(path.parent)
        except (OSError, InputError):
            os.close(self._descriptor)
            raise
        self._synced = time.monotonic()
        # The newline ends a line that a crash may have torn.
        durable.append(self._descriptor, path, b"\n" + _line({"schema": _SCHEMA}))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        """Everything that was noted, durable."""
        if self._descriptor is not None and self.path is not None:
            descriptor, self._descriptor = self._descriptor, None
            try:
                durable.fsync(descriptor, self.path)
            finally:
                os.close(descriptor)

    def fact(self, key: Key) -> Mapping[str, Any] | None:
        """What is known; `at` is when it was found, in seconds since 1970."""
        return self._facts.get(json.dumps(key))

    def note(self, key: Key, fact: Mapping[str, Any]) -> None:
        """A fact, from any thread. A full disk is said once; the reading goes on without its notes."""
        with self._alone:
            written = json.dumps(key)
            self._facts[written] = {**fact, "at": round(time.time())}
            if self._descriptor is None or self.path is None:
                return
            try:
                durable.append(self._descriptor, self.path, _line({"key": written, "fact": self._facts[written]}))
                if time.monotonic() - self._synced >= _SYNC_EVERY_S:
                    self._synced = time.monotonic()
                    durable.fsync(self._descriptor, self.path)
            except OSError as error:
                logger.warning("%s: progress is no longer kept (%s)", self.path, error.strerror or error)
                os.close(self._descriptor)
                self._descriptor = None

    def forget(self) -> None:
        """The reading came to its end: the next one reads everything again."""
        if self.path is not None:
            durable.remove(self.path)


def state_of(path: Path) -> list[Any]:
    """What can be told of a file without reading it, for a key: absolute path, size, time of its last change, inode.
    Raises OSError: it isn't there.
    """
    stat = os.stat(path)
    return [str(path.absolute()), stat.st_size, stat.st_mtime_ns, stat.st_ino]


def _line(value: Mapping[str, Any]) -> bytes:
    return _hashed(json.dumps(value).encode()) + b"\n"


def _hashed(said: bytes) -> bytes:
    return said + hashlib.sha256(said).hexdigest()[:_HASH_BYTES].encode()


def _read(path: Path) -> dict[str, dict[str, Any]]:
    """The facts of a file whose lines this version wrote; of another version's, none."""
    facts: dict[str, dict[str, Any]] = {}
    is_ours = False
    for written in _FILE.bytes_of(path).split(b"\n"):
        said = written[:-_HASH_BYTES]
        if not said or _hashed(said) != written:
            continue
        line = _FILE.parse(said, path)
        if line.schema:
            is_ours = line.schema == _SCHEMA
        elif is_ours:
            facts[line.key] = line.fact
    return facts


Algorithm = Literal["sha256", "git-sha1"]
_TICK_BYTES = 16 << 20


@dataclass(frozen=True)
class HashTask:
    """Some bytes and the hash that they should have.

    Attributes:
        owner: digest of the artifact or hub file that names the hash.
        name: the file in its owner.
        paths: where the bytes lie, one file or pieces in order.
        expected: in hex.
        said: how the hash was named: `sealed with`.
    """

    owner: str
    name: str
    paths: tuple[Path, ...]
    bytes: int
    algorithm: Algorithm
    expected: str
    said: str


@dataclass(frozen=True)
class HashResult:
    """The hash of a task's bytes.

    Attributes:
        actual: the hash that the bytes have; None where they can't be read.
        complaint: None where the bytes are as expected.
        bytes_read: by this process.
        found_at: when a former process found the bytes as expected, in seconds since 1970; None where this one did.
    """

    task: HashTask
    actual: str | None
    complaint: str | None
    bytes_read: int = 0
    found_at: int | None = None


def rehash(tasks: Sequence[HashTask], journal: Journal, threads: int, progress: Progress) -> Iterator[HashResult]:
    """A result for each task, those known from the journal first, then as they are done; large files are begun first.
    The progress counts the bytes of all.

    What was damaged is always read again. Closing the iterator calls the rest off.
    """
    fresh = []
    for task in tasks:
        known = _known(task, journal)
        if known is None:
            fresh.append(task)
        else:
            progress.add_done_before(task.bytes)
            yield HashResult(task, task.expected, None, 0, known)
    fresh.sort(key=lambda task: -task.bytes)
    stop, alone = threading.Event(), threading.Lock()

    def count(more_bytes: int) -> None:
        with alone:
            progress.add(more_bytes)

    pool = ThreadPoolExecutor(max(threads, 1))
    try:
        for reading in as_completed([pool.submit(_hash, task, journal, count, stop) for task in fresh]):
            yield reading.result()
    finally:
        stop.set()
        pool.shutdown(wait=True, cancel_futures=True)


def _known(task: HashTask, journal: Journal) -> int | None:
    """When a former process found the bytes as expected; None where none did, or the files were touched since."""
    try:
        fact = journal.fact(_key(task))
    except OSError:
        return None
    return int(fact["at"]) if fact is not None and fact.get("hash") == task.expected else None


def _key(task: HashTask) -> Key:
    """All that a hash depends on, as far as can be told without reading."""
    return ["whole", task.owner, task.name, task.algorithm, [state_of(path) for path in task.paths]]


def _hash(task: HashTask, journal: Journal, count: Callable[[int], None], stop: threading.Event) -> HashResult:
    """The result of a task; `count` is told how many more bytes are done. Raises CancelledError: the reading was called
    off.
    """
    digest = hashlib.sha256() if task.algorithm == "sha256" else hashlib.sha1(usedforsecurity=False)
    if task.algorithm == "git-sha1":
        digest.update(b"blob %d\0" % task.bytes)
    actual, complaint, done, counted = None, None, 0, 0
    try:
        key = _key(task)
        for block in itertools.chain.from_iterable(map(_blocks, task.paths)):
            if stop.is_set():
                raise CancelledError
            digest.update(block)
            done += len(block)
            if done - counted >= _TICK_BYTES:
                count(done - counted)
                counted = done
        actual = digest.hexdigest()
        if actual != task.expected:
            complaint = f"{task.algorithm} is {actual}, {task.said} {task.expected}"
        elif _key(task) == key:
            journal.note(key, {"hash": actual})
    except OSError as error:
        actual, complaint = None, unreadable(error)
    count(task.bytes - counted)
    return HashResult(task, actual, complaint, done)


def _blocks(path: Path) -> Iterator[memoryview]:
    with open(path, "rb", buffering=0) as file:
        yield from blocks(file)
