"""Metadata files: small files whose content is not trusted.

Metadata files are manifests, locks, plans, receipts, recipes and so on. `MetadataFormat` reads them without blocking,
and checks their size and shape. An edited, damaged or replaced file that fails these checks raises a one-line error.
"""

import errno
import io
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from pipeline_assets.spine.disk_errors import read_error_text
from pipeline_assets.spine.errors import InputError, RetryableError
from pipeline_assets.spine.typed_values import convert

_MAX_DEPTH = 100  # levels of lists and mappings; the project's files have at most ten
MAX_BITS = 64  # of an integer
_OPEN_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC  # never wait, not even for a FIFO, which is then refused
REBUILD = "run `corpusmill verify` on the folder, then rebuild it"  # fix for a damaged file of an artifact
T = TypeVar("T")
Part = TypeVar("Part")


@dataclass(frozen=True)
class MetadataFormat(Generic[T]):
    """Type of metadata file: its name in messages, maximum size, fix and value type.

    `fix` is the advice in errors. msgspec converts the content to `value_type`. `allow_symlink` is for files that users
    may link; the program writes no links.
    """

    noun: str
    max_bytes: int
    fix: str
    value_type: type[T]
    allow_symlink: bool = False

    def read(self, path: Path) -> T:
        """Read a file and convert its content to `value_type`.

        Raise FileNotFoundError or NotADirectoryError if the file is missing, and InputError if it is not a plain file,
        or is unreadable, too large or of the wrong shape.
        """
        return self.parse(self.read_raw(path), path)

    def read_valid(self, path: Path) -> T | None:
        """Read a file as `read` does; None if the file is missing or invalid."""
        try:
            return self.read(path)
        except (FileNotFoundError, NotADirectoryError, InputError):
            return None

    def read_raw(self, path: Path | str) -> bytes:
        """Return a file's bytes; raise the same errors as `read`, except parse errors."""
        # The path may be a string, since creating a Path takes longer than reading the file.
        flags = _OPEN_FLAGS | (0 if self.allow_symlink else os.O_NOFOLLOW)
        try:
            with io.FileIO(os.open(path, flags)) as file:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode):
                    raise self._file_error("the path is a pipe or a device", path)
                if status.st_size > self.max_bytes:
                    raise self._file_error(f"the file has more than {self.max_bytes:,} bytes", path)
                return file.read()
        except (FileNotFoundError, NotADirectoryError):
            raise
        except IsADirectoryError:
            raise self._file_error("the path is a folder", path) from None
        except PermissionError:
            raise RetryableError("reading is not allowed", path, "grant read permission") from None
        except OSError as error:
            is_link = error.errno == errno.ELOOP and not self.allow_symlink and os.path.islink(path)
            raise self._file_error("the path is a link" if is_link else read_error_text(error), path) from None

    def has_content(self, path: Path, data: bytes) -> bool:
        """Check whether the file exists and contains exactly these bytes."""
        try:
            return self.read_raw(path) == data
        except (FileNotFoundError, NotADirectoryError, InputError):
            return False

    def parse(self, data: bytes, where: Path | str) -> T:
        """Convert the bytes of a file to `value_type`; raise InputError if that fails."""
        try:
            value = msgspec.json.decode(data)
        except (ValueError, RecursionError) as error:
            raise self._file_error(f"invalid JSON ({error})", where) from None
        if (problem := _limit_error(value)) is not None:
            raise self._file_error(problem, where)
        return self.convert_part(value, self.value_type, where)

    def convert_part(self, value: Any, value_type: type[Part], where: Path | str) -> Part:
        """Convert a part of decoded JSON; raise InputError if it is not a `value_type`."""
        try:
            return convert(value, value_type)
        except msgspec.ValidationError as error:
            raise self._file_error(str(error), where) from None

    def _file_error(self, problem: str, where: Path | str) -> InputError:
        return InputError(f"not a valid {self.noun}: {problem}", where, self.fix)


def _limit_error(value: object) -> str | None:
    """Describe too deep nesting or a too large integer; None if neither occurs."""
    # Walk the levels from the top, since recursion would fail on the nesting that is searched for.
    level: list[Any] = [[value]]
    for _ in range(_MAX_DEPTH + 1):
        items = [item for part in level for item in (part.values() if isinstance(part, dict) else part)]
        if any(isinstance(item, int) and item.bit_length() > MAX_BITS for item in items):
            return f"a number has more than {MAX_BITS} bits"
        level = [item for item in items if isinstance(item, list | dict)]
        if not level:
            return None
    return f"JSON is nested deeper than {_MAX_DEPTH} levels"
