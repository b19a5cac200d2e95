"""A file of a known size that workers write together, each a range of its own; nothing is copied afterwards.

Its receipts are those of the ranges. Each names the whole file: while that is there with its size, a range with a
receipt is as it was written.
"""

import os
from pathlib import Path

from pipeline_assets.corpus.spine import durable


def reserve(path: Path, size: int) -> None:
    """A file of so many zero bytes under `path`, durable; one that is there stays as it is."""
    if path.exists():
        return
    temporary = path.with_name(path.name + durable.TEMPORARY_SUFFIX)
    durable.step("create", temporary)
    with open(temporary, "wb") as file:
        file.truncate(size)
        durable.step("fsync", temporary)
        os.fsync(file.fileno())
    durable.rename(temporary, path)


def write_range(path: Path, offset: int, data: memoryview) -> None:
    """`data` at its place in the file, durable."""
    durable.step("append", path)
    with open(path, "r+b", buffering=0) as file:
        file.seek(offset)
        left = data.cast("B")
        while left.nbytes:
            left = left[file.write(left) or 0 :]
        durable.step("fsync", path)
        os.fsync(file.fileno())
