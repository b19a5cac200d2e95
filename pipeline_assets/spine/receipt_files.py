"""Files of a staging directory, compared with the receipts that name them."""

import contextlib
import os
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pipeline_assets.spine import durable
from pipeline_assets.spine.errors import InputError, RetryableError
from pipeline_assets.spine.files import HASHING_THREADS, stream_sha256
from pipeline_assets.spine.manifest import is_inside_folder
from pipeline_assets.spine.staging import RECEIPTS_FOLDER, WORK_FOLDER, OutputFile, read_receipt


@contextlib.contextmanager
def verify_work(folder: Path) -> Iterator[None]:
    """Check files in `.work` after the block; RetryableError if a file has changed.

    After a change, all receipts are removed, since any shard may have read the changed file. The RetryableError
    replaces any other error of the block. If the block raises InputError, nothing is checked.
    """
    try:
        yield
    except InputError:
        raise
    except Exception:
        _raise_if_changed(folder)
        raise
    _raise_if_changed(folder)


def _raise_if_changed(folder: Path) -> None:
    paths = sorted((folder / RECEIPTS_FOLDER).rglob("*.json"))
    with ThreadPoolExecutor(HASHING_THREADS) as pool:
        changed = next(filter(None, pool.map(lambda path: find_changed_work(folder, path), paths)), None)
    if changed is not None:
        durable.remove(folder / RECEIPTS_FOLDER)
        what = "the work file changed since it was written"
        raise RetryableError(what, folder / changed, "run the same command again")


def find_changed_work(folder: Path, receipt_file: Path) -> str | None:
    """Return the path of a receipt's first changed work file; None if all are intact.

    Missing files count as intact.
    """
    receipt = read_receipt(receipt_file)
    work = [] if receipt is None else [file for file in receipt.files if file.path.startswith(f"{WORK_FOLDER}/")]
    changed = (file.path for file in work if (folder / file.path).exists() and not matches_receipt(folder, file))
    return next(changed, None)


def matches_receipt(folder: Path, file: OutputFile) -> bool:
    if not is_inside_folder(file.path):
        return False
    try:
        descriptor = os.open(folder / file.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    with open(descriptor, "rb", buffering=0) as opened:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or (file.start is None and status.st_size != file.bytes):
            return False
        opened.seek(file.start or 0)
        return stream_sha256(opened, file.bytes) == file.sha256
