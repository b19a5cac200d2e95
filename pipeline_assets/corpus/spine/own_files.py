"""The small files that the project writes and reads back: manifests, locks, plans, receipts, tickets, recipes.

Between the two anything can have happened to one: an edit, a bad disk, a folder, a link or a device in its place. So
each is read in one way: without waiting, up to the size that such a file may have, and into the shape that it should
have. What isn't so is one line.
"""

import errno
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from pipeline_assets.corpus.spine.errors import InputError, Obstacle

_DEEPEST = 100  # levels of lists and mappings; what the project writes has ten
_MOST_BITS = 64
_WITHOUT_WAITING = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC  # a FIFO without a writer is opened, and then refused
REBUILD = "run `corpusmill verify` on the folder, then rebuild it"  # what a file of an artifact asks for
T = TypeVar("T")
Part = TypeVar("Part")


@dataclass(frozen=True)
class OwnFile(Generic[T]):
    """One kind of own file.

    Attributes:
        noun: what people call it.
        most_bytes: a larger one isn't read.
        fix: what to do about one that isn't as it should be.
        shape: a type that msgspec converts to.
        may_be_link: whether people lay links in its place; of what the program alone writes, a link is none.
    """

    noun: str
    most_bytes: int
    fix: str
    shape: type[T]
    may_be_link: bool = False

    def read(self, path: Path) -> T:
        """What the file says.

        Raises:
            FileNotFoundError, NotADirectoryError: nothing is there.
            InputError: what is there is no such file.
        """
        return self.parse(self.bytes_of(path), path)

    def bytes_of(self, path: Path) -> bytes:
        """What the file holds. Raises as `read` does."""
        flags = _WITHOUT_WAITING | (0 if self.may_be_link else os.O_NOFOLLOW)
        try:
            with open(path, "rb", buffering=0, opener=lambda name, _: os.open(name, flags)) as file:
                found = os.fstat(file.fileno())
                if not stat.S_ISREG(found.st_mode):
                    raise self._refused("it is a pipe or a device", path)
                if found.st_size > self.most_bytes:
                    raise self._refused(f"it has more than {self.most_bytes:,} bytes", path)
                return file.read()
        except (FileNotFoundError, NotADirectoryError):
            raise
        except IsADirectoryError:
            raise self._refused("it is a folder", path) from None
        except PermissionError:
            raise Obstacle("reading is not allowed", path, "give read permission") from None
        except OSError as error:
            is_link = error.errno == errno.ELOOP and not self.may_be_link and path.is_symlink()
            words = "it is a link" if is_link else f"it can't be read ({error.strerror or error})"
            raise self._refused(words, path) from None

    def parse(self, data: bytes, where: Path) -> T:
        """What the bytes of such a file say.

        Raises:
            InputError: they aren't JSON of its shape.
        """
        try:
            value = msgspec.json.decode(data)
        except (ValueError, RecursionError) as error:
            raise self._refused(f"no JSON ({error})", where) from None
        if (complaint := _excess(value)) is not None:
            raise self._refused(complaint, where)
        return self.shaped(value, self.shape, where)

    def shaped(self, value: Any, shape: type[Part], where: Path) -> Part:
        """A part of what the file says.

        Raises:
            InputError: it isn't of the shape.
        """
        try:
            return msgspec.convert(value, shape)
        except msgspec.ValidationError as error:
            raise self._refused(str(error), where) from None

    def _refused(self, complaint: str, where: Path) -> InputError:
        return InputError(f"this is no {self.noun}: {complaint}", where, self.fix)


def _excess(value: object) -> str | None:
    """What a JSON value has more of than any of ours, on which functions that call themselves, or that calculate, fail:
    levels or digits; None of others.
    """
    level = [value]
    for _ in range(_DEEPEST):
        items = [
            item
            for part in level
            for item in (part.values() if isinstance(part, dict) else part if isinstance(part, list) else (part,))
        ]
        if any(isinstance(item, int) and item.bit_length() > _MOST_BITS for item in items):
            return f"a number has more than {_MOST_BITS} bits"
        level = [item for item in items if isinstance(item, list | dict)]
        if not level:
            return None
    return f"it is nested deeper than {_DEEPEST} levels"
