"""Downloads from stores, which continue where an earlier download stopped.

After each part of a file, a receipt records the object's version, and the count and sha256 of the bytes so far.
"""

import hashlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from pipeline_assets.corpus.readers.hub_files import map_in_order
from pipeline_assets.corpus.stores.hub_store import HubStore
from pipeline_assets.corpus.stores.object_store import ObjectStore, StoredObject
from pipeline_assets.spine import durable
from pipeline_assets.spine.artifact import size_error
from pipeline_assets.spine.files import read_blocks
from pipeline_assets.spine.progress import Progress
from pipeline_assets.spine.staging import OutputFile, Receipt, StagingView

Store: TypeAlias = ObjectStore | HubStore
STAGE = "download"
_PART_BYTES = 8 << 20
_QUIET_S = 1.0


def download_all(
    store: Store, objects: Mapping[str, StoredObject], folder: StagingView, title: str, threads: int, log_every_s: float
) -> Iterator[OutputFile]:
    """Download objects by path; yield the bytes and sha256 of each, in order.

    An object that is missing, or shorter than its size here, yields fewer bytes.
    """
    total, lock = sum(stored.bytes for stored in objects.values()), threading.Lock()
    progress = Progress(title, total, "bytes", log_every_s, _QUIET_S)

    def count(more_bytes: int) -> None:
        with lock:
            progress.add(more_bytes)

    def download(item: tuple[str, StoredObject]) -> OutputFile:
        return _download(store, *item, folder, count)

    return map_in_order(download, objects.items(), threads)


def receipt_name(path: str) -> str:
    """Return the name of a file's receipt, which is not a path and never too long."""
    return hashlib.sha256(path.encode()).hexdigest()


def is_downloaded(path: str, stored: StoredObject, folder: StagingView) -> bool:
    """Check whether a file is a complete copy of this version of an object."""
    copy = _read_record(path, stored, folder)
    return copy is not None and copy.bytes == stored.bytes and size_error(folder.folder, copy.stored) is None


def _download(
    store: Store, name: str, stored: StoredObject, folder: StagingView, count: Callable[[int], None]
) -> OutputFile:
    path, digest, copy = folder.path(name), hashlib.sha256(), _read_record(name, stored, folder)
    if copy is not None and path.exists():
        with open(path, "rb", buffering=0) as earlier:
            for block in read_blocks(earlier, copy.bytes):
                digest.update(block)
    if copy is None or copy.sha256 != digest.hexdigest():
        folder.remove_receipt(STAGE, receipt_name(name))
        durable.remove(path)
        durable.reserve(path, stored.bytes)
        digest = hashlib.sha256()
        copy = _record(name, stored, folder, 0, digest.hexdigest())
    count(copy.bytes)
    while copy.bytes < stored.bytes:
        part = store.read(stored.name, copy.bytes, min(_PART_BYTES, stored.bytes - copy.bytes), stored.version)
        if not part:
            break
        durable.write_range(path, copy.bytes, memoryview(part))
        if stored.modified_ns is not None:
            os.utime(path, ns=(stored.modified_ns, stored.modified_ns))
        digest.update(part)
        copy = _record(name, stored, folder, copy.bytes + len(part), digest.hexdigest())
        count(len(part))
    return copy


def _record(name: str, stored: StoredObject, folder: StagingView, size: int, sha256: str) -> OutputFile:
    """Record that the first `size` bytes of a file are durable."""
    copy = OutputFile(name, 1, size, sha256, sha256, start=0)
    folder.commit(STAGE, receipt_name(name), Receipt([copy], {}, {"version": stored.version}))
    return copy


def _read_record(name: str, stored: StoredObject, folder: StagingView) -> OutputFile | None:
    receipt = folder.receipt(STAGE, receipt_name(name))
    return None if receipt is None or receipt.notes != {"version": stored.version} else receipt.files[0]
