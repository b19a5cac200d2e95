"""sha256 of files, read in blocks, and of what is ranked by a seed."""

import hashlib
from pathlib import Path
from typing import BinaryIO

_BLOCK_BYTES = 1 << 20


def file_sha256(path: Path) -> str:
    """Hex sha256 of a file's bytes, read in blocks."""
    with open(path, "rb", buffering=0) as file:
        return stream_sha256(file)


def stream_sha256(file: BinaryIO, size: int | None = None) -> str:
    """Hex sha256 of the next `size` bytes of a stream, or of all that is left of it."""
    digest, left = hashlib.sha256(), size
    block = memoryview(bytearray(_BLOCK_BYTES))
    while count := file.readinto(block if left is None else block[:left]):  # type: ignore[attr-defined]
        digest.update(block[:count])
        left = None if left is None else left - count
    return digest.hexdigest()


def unreadable(error: OSError) -> str:
    """What to say of a file that the system doesn't give: a bad sector, a missing right, a folder in its place."""
    return f"it can't be read ({error.strerror or error})"


def rank(seed: str, *parts: object) -> bytes:
    """sha256 of the seed and what is ranked, joined by NUL: the order of a seeded draw, the same on every machine."""
    return hashlib.sha256("\0".join([seed, *map(str, parts)]).encode("utf-8")).digest()
