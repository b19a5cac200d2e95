"""Durable files in which each worker writes its own byte range."""

import os
from pathlib import Path

from pipeline_assets.spine.durable import (
    DurableFile,
    call_failpoint,
    fsync,
    name_file_in_errors,
    remove_abandoned,
    take_over,
    write_all,
)


def reserve(path: Path, byte_count: int) -> None:
    """Create a durable file of `byte_count` zero bytes, or take over an existing file."""
    if path.exists():
        remove_abandoned(path.parent)
        take_over(path)
    else:
        with DurableFile(path) as file, name_file_in_errors(path):
            os.truncate(file.fileno(), byte_count)


def write_range(path: Path, offset: int, data: memoryview) -> None:
    """Write `data` durably, from byte `offset` of a file that `reserve` created."""
    call_failpoint("append", path)
    with open(path, "r+b", buffering=0) as file:
        file.seek(offset)
        write_all(file.fileno(), path, data.cast("B"))
        fsync(file.fileno(), path)
