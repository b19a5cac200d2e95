"""What a long reading has found so far, so that the next process goes on where this one stopped: a file of JSON lines,
only ever appended to.

A line is handed to the system as soon as there is something to say and made durable every few seconds; `kill -9` loses
nothing, a power cut the last seconds. A line that a crash tore says nothing, nor does one of which a bit flipped: each
ends with a hash of what it says.
"""

import fcntl
import hashlib
import json
import logging
import os
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from pipeline_assets.corpus.spine import durable
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.own_files import OwnFile

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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
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

    Raises:
        OSError: it isn't there.
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
