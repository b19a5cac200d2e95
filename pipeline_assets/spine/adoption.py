"""Reuse of an interrupted build's finished shards, after checking their files."""

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pipeline_assets.spine import durable
from pipeline_assets.spine.files import stream_sha256
from pipeline_assets.spine.manifest import is_inside
from pipeline_assets.spine.staging import RECEIPTS, OutputFile, read_receipt

_THREADS = 4  # hashing releases the interpreter lock


def drop_invalid_receipts(folder: Path) -> set[str]:
    """Remove invalid receipts; return the paths that the valid receipts name.

    A receipt is invalid if it is damaged, or if a file that it names is missing or changed. Its shard then runs again.
    """
    paths = sorted((folder / RECEIPTS).rglob("*.json"))
    named: set[str] = set()
    with ThreadPoolExecutor(_THREADS) as pool:
        for path, files in zip(paths, pool.map(lambda path: _intact_files(folder, path), paths), strict=True):
            if files is None:
                durable.remove(path)
            else:
                named |= files
    return named


def _intact_files(folder: Path, receipt_file: Path) -> set[str] | None:
    receipt = read_receipt(receipt_file)
    if receipt is None or not all(_matches_receipt(folder, file) for file in receipt.files):
        return None
    return {file.path for file in receipt.files}


def _matches_receipt(folder: Path, file: OutputFile) -> bool:
    if not is_inside(file.path):
        return False
    try:
        descriptor = os.open(folder / file.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    with open(descriptor, "rb", buffering=0) as opened:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return False
        if file.start is None:
            return status.st_size == file.bytes and stream_sha256(opened) == file.sha256
        opened.seek(file.start)
        return stream_sha256(opened, file.bytes) == file.sha256
