"""Resumable downloads from stores.

After each part of a file, a receipt records the object's version, and the size and sha256 of the bytes received so far.
"""

import hashlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeAlias

from pipeline_assets.corpus.readers.hub_files import map_in_order
from pipeline_assets.corpus.stores.hub_store import HubStore
from pipeline_assets.corpus.stores.object_store import ObjectStore, StoredObject
from pipeline_assets.spine import durable, file_ranges
from pipeline_assets.spine.artifact import size_error
from pipeline_assets.spine.files import read_blocks
from pipeline_assets.spine.progress import Progress
from pipeline_assets.spine.staging import OutputFile, Receipt, StagingView

Store: TypeAlias = ObjectStore | HubStore
DOWNLOAD_STAGE = "download"
_PART_BYTES = 8 << 20
_QUIET_S = 1.0


def download_all(
    store: Store, objects: Mapping[str, StoredObject], folder: StagingView, title: str, threads: int, log_every_s: float
) -> Iterator[OutputFile]:
    """Download objects to paths in a folder; yield an OutputFile for each, in order.

    `objects` maps paths to objects. If the store lacks an object or a part of it, the OutputFile has fewer `bytes` than
    the StoredObject; the caller must compare both sizes.
    """
    total, lock = sum(stored.bytes for stored in objects.values()), threading.Lock()
    progress = Progress(title, total, "bytes", log_every_s, _QUIET_S)

    def add_bytes(byte_count: int) -> None:
        with lock:
            progress.add(byte_count)

    def download(item: tuple[str, StoredObject]) -> OutputFile:
        return _download(store, *item, folder, add_bytes)

    return map_in_order(download, objects.items(), threads)


def missing_objects(objects: Iterable[StoredObject], folder: StagingView) -> list[StoredObject]:
    """Return the objects whose version has no complete and unchanged copy in `folder`."""

    def is_complete(stored: StoredObject) -> bool:
        copy = _find_copy(stored.name, stored, folder)
        if copy is None or copy.bytes != stored.bytes or size_error(folder.folder, copy.stored) is not None:
            return False
        return stored.modified_ns in (None, (folder.folder / stored.name).stat().st_mtime_ns)

    return [stored for stored in objects if not is_complete(stored)]


def receipt_name(path: str) -> str:
    """Return a receipt's name: a hash, because the path itself may be too long."""
    return hashlib.sha256(path.encode()).hexdigest()


def _find_copy(path: str, stored_object: StoredObject, folder: StagingView) -> OutputFile | None:
    """Return the file of an earlier download of this version; it may be partial.

    Return None if the file's receipt is missing or names a different version of the object.
    """
    receipt = folder.read_receipt(DOWNLOAD_STAGE, receipt_name(path))
    return None if receipt is None or receipt.notes != {"version": stored_object.version} else receipt.files[0]


def _download(
    store: Store, path: str, stored_object: StoredObject, folder: StagingView, add_bytes: Callable[[int], None]
) -> OutputFile:
    local_path, digest, copy = folder.path(path), hashlib.sha256(), _find_copy(path, stored_object, folder)

    def set_time() -> None:
        if (modified_ns := stored_object.modified_ns) is not None:
            os.utime(local_path, ns=(modified_ns, modified_ns))  # so that a new copy counts as unchanged

    def record(size: int) -> OutputFile:
        set_time()
        durable_part = OutputFile(path, 1, size, digest.hexdigest(), digest.hexdigest(), start=0)
        receipt = Receipt([durable_part], {}, {"version": stored_object.version})
        folder.commit(DOWNLOAD_STAGE, receipt_name(path), receipt)
        return durable_part

    if copy is not None and local_path.exists():
        durable.take_over(local_path)
        with open(local_path, "rb", buffering=0) as earlier:
            for block in read_blocks(earlier, copy.bytes):
                digest.update(block)
    if copy is None or copy.sha256 != digest.hexdigest():
        folder.remove_receipt(DOWNLOAD_STAGE, receipt_name(path))
        durable.remove(local_path)
        durable.remove_abandoned(local_path.parent)
        file_ranges.reserve(local_path, stored_object.bytes)
        digest = hashlib.sha256()
        copy = record(0)
    elif local_path.exists():
        set_time()
    add_bytes(copy.bytes)
    while copy.bytes < stored_object.bytes:
        part_bytes = min(_PART_BYTES, stored_object.bytes - copy.bytes)
        part = store.read(stored_object.name, copy.bytes, part_bytes, stored_object.version)
        if not part:
            break
        file_ranges.write_range(local_path, copy.bytes, memoryview(part))
        digest.update(part)
        copy = record(copy.bytes + len(part))
        add_bytes(len(part))
    return copy
