"""Durable files in which each worker writes its own byte range."""

import os
from pathlib import Path

from pipeline_assets.spine import durable


def reserve(path: Path, byte_count: int) -> None:
    """Create a durable file of `byte_count` zero bytes, unless the file exists.

    Each worker then writes its own range of the file, so the outputs of workers need not be joined.
    """
    if not path.exists():
        with durable.DurableFile(path) as file, durable.name_file_in_errors(path):
            os.truncate(file.fileno(), byte_count)


def write_range(path: Path, offset: int, data: memoryview) -> None:
    durable.call_failpoint("append", path)
    with open(path, "r+b", buffering=0) as file:
        file.seek(offset)
        durable.write_all(file.fileno(), path, data.cast("B"))
        durable.fsync(file.fileno(), path)
