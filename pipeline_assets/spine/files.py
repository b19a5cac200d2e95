"""Functions that read and hash files in blocks, check folders and sort by a seed."""

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from pipeline_assets.spine.errors import UsageError

HASHING_THREADS = 4  # hashing releases the interpreter lock
_BLOCK_BYTES = 1 << 20


def file_sha256(path: Path) -> str:
    """Return the hex sha256 of a file, read in blocks."""
    with open(path, "rb", buffering=0) as file:
        return stream_sha256(file)


def stream_sha256(file: BinaryIO, byte_count: int | None = None) -> str:
    """Return the hex sha256 of a stream's next `byte_count` bytes, or of all if None."""
    digest = hashlib.sha256()
    for block in read_blocks(file, byte_count):
        digest.update(block)
    return digest.hexdigest()


def read_blocks(file: BinaryIO, byte_count: int | None = None) -> Iterator[memoryview]:
    """Yield the next `byte_count` bytes of a stream in blocks; None reads to its end.

    All blocks share one buffer, so use each block before the next.
    """
    block, remaining = memoryview(bytearray(_BLOCK_BYTES)), byte_count
    while count := file.readinto(block[:remaining]):  # type: ignore[attr-defined]
        yield block[:count]
        remaining = None if remaining is None else remaining - count


def require_utf8_names() -> None:
    """Raise UsageError if the locale has another encoding of file names than UTF-8.

    Names in manifests would differ.
    """
    if (encoding := sys.getfilesystemencoding()) != "utf-8":
        what = f"Python decodes file names as {encoding}, but names in manifests are UTF-8"
        raise UsageError(what, "locale", "set PYTHONUTF8=1, and run again")


def require_folder(folder: Path, fix: str) -> None:
    """Raise UsageError, with the advice `fix`, if a path is missing or not a folder."""
    if not folder.is_dir():
        what = "expected a folder, got a file" if folder.exists() else "folder not found"
        raise UsageError(what, folder, fix)


def seeded_sort_key(seed: str, *parts: object) -> bytes:
    """Return an item's sort key for a seeded random order, equal on every machine.

    The key is the sha256 of the seed and the parts of the item's name, joined by NUL.
    """
    return hashlib.sha256("\0".join([seed, *map(str, parts)]).encode("utf-8")).digest()
