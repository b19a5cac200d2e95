"""How files are read: hashed in blocks; own files, in their shape; those of one folder, held open; and inputs of a
build, held against the hashes that they were sealed or listed with.

Own files are the small ones that the project writes and reads back: manifests, locks, plans, receipts, tickets,
recipes. Between the two anything can have happened to one: an edit, a bad disk, a folder, a link or a device in its
place. So each is read in one way: without waiting, up to the size that such a file may have, and into the shape that it
should have. What isn't so is one line.

Of the files that a build reads, one that is read from its beginning to its end is hashed as it is read, by the process
that reads it: `hashed`. One that is looked into anywhere is hashed before: `expect_hash`. One that was read in part is
hashed whole in the end, by `logged`. So no flipped bit of an input travels downstream under a good digest.
"""

import contextlib
import errno
import functools
import hashlib
import io
import os
import stat
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Generic, Protocol, TypeVar

import msgspec

from pipeline_assets.spine.errors import InputError, RetryableError

_BLOCK_BYTES = 1 << 20


def file_sha256(path: Path) -> str:
    """Hex sha256 of a file's bytes, read in blocks."""
    with open(path, "rb", buffering=0) as file:
        return stream_sha256(file)


def stream_sha256(file: BinaryIO, size: int | None = None) -> str:
    """Hex sha256 of the next `size` bytes of a stream, or of all that is left of it."""
    digest = hashlib.sha256()
    for block in blocks(file, size):
        digest.update(block)
    return digest.hexdigest()


def blocks(file: BinaryIO, size: int | None = None) -> Iterator[memoryview]:
    """The next `size` bytes of a stream, or all that is left of it; each block is overwritten by the next."""
    block, left = memoryview(bytearray(_BLOCK_BYTES)), size
    while count := file.readinto(block if left is None else block[:left]):  # type: ignore[attr-defined]
        yield block[:count]
        left = None if left is None else left - count


def read_error_text(error: OSError) -> str:
    """What to say of a file that the system doesn't give: a bad sector, a missing right, a folder in its place."""
    return f"it can't be read ({error.strerror or error})"


def seeded_rank(seed: str, *parts: object) -> bytes:
    """sha256 of the seed and what is ranked, joined by NUL: the order of a seeded draw, the same on every machine."""
    return hashlib.sha256("\0".join([seed, *map(str, parts)]).encode("utf-8")).digest()


_MAX_DEPTH = 100  # levels of lists and mappings; what the project writes has ten
_MAX_BITS = 64
_WITHOUT_WAITING = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC  # a FIFO without a writer is opened, and then refused
REBUILD = "run `corpusmill verify` on the folder, then rebuild it"  # what a file of an artifact asks for
T = TypeVar("T")
Part = TypeVar("Part")


@dataclass(frozen=True)
class MetadataFile(Generic[T]):
    """One kind of own file.

    Attributes:
        noun: what people call it.
        max_bytes: a larger one isn't read.
        fix: what to do about one that isn't as it should be.
        shape: a type that msgspec converts to.
        allow_symlink: whether people lay links in its place; of what the program alone writes, a link is none.
    """

    noun: str
    max_bytes: int
    fix: str
    shape: type[T]
    allow_symlink: bool = False

    def read(self, path: Path) -> T:
        """What the file says. Raises FileNotFoundError, NotADirectoryError: nothing is there; InputError: what is there
        is no such file.
        """
        return self.parse(self.read_raw(path), path)

    def read_raw(self, path: Path | str) -> bytes:
        """What the file holds. Raises as `read` does. A path is longer made than its file read, so a name will do."""
        flags = _WITHOUT_WAITING | (0 if self.allow_symlink else os.O_NOFOLLOW)
        try:
            with io.FileIO(os.open(path, flags)) as file:
                found = os.fstat(file.fileno())
                if not stat.S_ISREG(found.st_mode):
                    raise self._refused("it is a pipe or a device", path)
                if found.st_size > self.max_bytes:
                    raise self._refused(f"it has more than {self.max_bytes:,} bytes", path)
                return file.read()
        except (FileNotFoundError, NotADirectoryError):
            raise
        except IsADirectoryError:
            raise self._refused("it is a folder", path) from None
        except PermissionError:
            raise RetryableError("reading is not allowed", path, "give read permission") from None
        except OSError as error:
            is_link = error.errno == errno.ELOOP and not self.allow_symlink and os.path.islink(path)
            raise self._refused("it is a link" if is_link else read_error_text(error), path) from None

    def has_content(self, path: Path, data: bytes) -> bool:
        """Whether such a file is there, and holds these very bytes."""
        try:
            return self.read_raw(path) == data
        except (FileNotFoundError, NotADirectoryError, InputError):
            return False

    def parse(self, data: bytes, where: Path) -> T:
        """What the bytes of such a file say. Raises InputError: they aren't JSON of its shape."""
        try:
            value = msgspec.json.decode(data)
        except (ValueError, RecursionError) as error:
            raise self._refused(f"no JSON ({error})", where) from None
        if (complaint := _nesting_error(value)) is not None:
            raise self._refused(complaint, where)
        return self.convert_part(value, self.shape, where)

    def convert_part(self, value: Any, shape: type[Part], where: Path) -> Part:
        """A part of what the file says. Raises InputError: it isn't of the shape."""
        try:
            return msgspec.convert(value, shape)
        except msgspec.ValidationError as error:
            raise self._refused(str(error), where) from None

    def _refused(self, complaint: str, where: Path | str) -> InputError:
        return InputError(f"this is no {self.noun}: {complaint}", where, self.fix)


def _nesting_error(value: object) -> str | None:
    """What a JSON value has more of than any of ours, on which functions that call themselves, or that calculate, fail:
    levels or digits; None of others.
    """
    level: list[Any] = [[value]]
    for _ in range(_MAX_DEPTH + 1):
        items = [item for part in level for item in (part.values() if isinstance(part, dict) else part)]
        if any(isinstance(item, int) and item.bit_length() > _MAX_BITS for item in items):
            return f"a number has more than {_MAX_BITS} bits"
        level = [item for item in items if isinstance(item, list | dict)]
        if not level:
            return None
    return f"it is nested deeper than {_MAX_DEPTH} levels"


class PinnedFolder:
    """A folder as `held` opened it, and where it lay then; one that is replaced lies elsewhere, until it is removed."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path, self._descriptor = path, descriptor

    @property
    def view(self) -> Path:
        """A path that leads to this very folder, where the system has one, as Linux does; else its own."""
        view = Path(f"/proc/self/fd/{self._descriptor}")
        return view if view.is_dir() else self.path

    def open(self, name: str) -> BinaryIO:
        """A file of the folder, for reading. Raises OSError: it has none of this name, or it can't be read."""
        return open(name, "rb", opener=functools.partial(os.open, dir_fd=self._descriptor))

    def size(self, name: str) -> int | None:
        """Of a file of the folder, in bytes; None where there is none."""
        try:
            return os.stat(name, dir_fd=self._descriptor).st_size
        except (FileNotFoundError, NotADirectoryError):
            return None

    def is_in_place(self) -> bool:
        """Whether its path still leads to it. While it is held, no other folder can have its inode."""
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self._descriptor))
        except OSError:
            return False


_RETRY_HINT = "run the same command again"


@contextlib.contextmanager
def pin_folder(folder: Path, fix: str = _RETRY_HINT) -> Iterator[PinnedFolder]:
    """Holds a folder while the block reads it; what the block found counts only if nothing took its place meanwhile.
    Raises OSError: there is no such folder; RetryableError, with this fix: another one took its place meanwhile.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        opened = PinnedFolder(folder, descriptor)
        try:
            yield opened
        except Exception as error:  # files that were removed, or halves of two sets, fail in any way
            if opened.is_in_place():
                raise
            raise replaced_error(folder, fix) from error
        if not opened.is_in_place():
            raise replaced_error(folder, fix)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def forbid_replacement(folder: Path) -> Iterator[None]:
    """The block reads files of a folder by their paths, one after the other: all of them are of one folder. Where there
    is no folder, the block says so. Raises RetryableError: another one took its place meanwhile.
    """
    with contextlib.ExitStack() as holding:
        with contextlib.suppress(OSError):
            holding.enter_context(pin_folder(folder))
        yield


def replaced_error(folder: Path, fix: str = _RETRY_HINT) -> RetryableError:
    """Another folder took the place of the one that was opened, or none is there any more."""
    return RetryableError("it was replaced while it was read", folder, fix)


_THREADS = 4  # sha256 lets the others run


class Readable(Protocol):
    """An open file."""

    def read(self, size: int, /) -> bytes:
        """The next bytes, `size` at most; none at the end."""


@dataclass(frozen=True)
class ExpectedHash:
    """The hash that a file should have, by what it was promised (`sealed with`), and what to do where it has another
    one.
    """

    sha256: str
    expected_by: str
    fix: str


class _Log:
    """The files that one build reads, by path: what they should be, and which of them are known to be so."""

    def __init__(self) -> None:
        self.promises: dict[str, ExpectedHash] = {}
        self.kept: set[str] = set()


_log: _Log | None = None
_gathered: dict[str, str] | None = None


@contextlib.contextmanager
def verify_reads() -> Iterator[None]:
    """The block is a build, in this process. Promised files that nobody read whole are hashed at its end. Raises
    InputError: a file is not as promised, or is gone.
    """
    global _log
    former, _log = _log, (log := _Log())
    try:
        yield
        left = [path for path in log.promises if path not in log.kept]
        with ThreadPoolExecutor(_THREADS) as pool:
            for path, sha256 in zip(left, pool.map(_sha256, left), strict=True):
                check_hashes({path: sha256})
    finally:
        _log = former


@contextlib.contextmanager
def collect_hashes() -> Iterator[dict[str, str]]:
    """The hashes of files that are read whole in the block, by path: what a worker tells of its shard."""
    global _gathered
    former, _gathered = _gathered, {}
    try:
        yield _gathered
    finally:
        _gathered = former


def expect_hash(path: Path, promise: ExpectedHash, is_streamed: bool) -> None:
    """From now on the build that is made in this process, if one is, reads a file. One that is streamed is hashed by
    its readers as they read it, else it is hashed here. Raises InputError: it has another hash.
    """
    if _log is not None:
        _log.promises[str(path)] = promise
        if not is_streamed and str(path) not in _log.kept:
            check_hashes({str(path): _sha256(str(path))})


def check_hashes(reads: Mapping[str, str]) -> None:
    """Notes hashes of files that the build in this process, if one is made, read whole, by path. Raises InputError: a
    file is not as promised.
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
        raise RetryableError(read_error_text(error), path, "give it back, then run the same command") from None


def hash_while_reading(file: Readable, path: Path) -> Readable:
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
                check_hashes(found)
            else:
                _gathered.update(found)
        return data
