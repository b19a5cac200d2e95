"""Pull of sealed artifacts from a store.

Files are hashed while they are written. A pull that was interrupted continues, because the finished parts of files have
receipts in the staging directory, like the shards of a build.
"""

import functools
import hashlib
import threading
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from pipeline_assets.corpus.readers.hub_files import map_in_order
from pipeline_assets.spine import durable
from pipeline_assets.spine.artifact import check_record_path, read_check_results, size_error, try_read_manifest
from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.spine.files import read_blocks
from pipeline_assets.spine.manifest import FILE_NAME, Manifest, StoredFile
from pipeline_assets.spine.opening import open_staging_dir, recover, seal_in_place
from pipeline_assets.spine.progress import Progress
from pipeline_assets.spine.staging import OutputFile, Receipt, StagingDir
from pipeline_assets.trust.push import REFS, Entry, Ref, Store, manifest_key, object_key, parse_ref, ref_key

_PART_BYTES = 8 << 20
_THREADS = 8
_STAGE = "pull"
_QUIET_S = 1.0
_MAX_LISTED = 20
_PUSH_AGAIN = "delete the object, and push the artifact again from a data root that has it"


def find_ref(store: Store, name: str | None, default: str | None) -> Ref:
    """Return a pointer by name; without a name, `default` or the only one.

    Raise UsageError that lists the names if no pointer is found, or if there are several.
    """
    chosen, names = name if name is not None else default, list[str]()
    pointer = None if chosen is None else store.pointer(ref_key(chosen))
    if pointer is None:
        names = [key.removeprefix(f"{REFS}/").removesuffix(".json") for key in store.keys(REFS)]
    if name is None and len(names) == 1:
        chosen, pointer = names[0], store.pointer(ref_key(names[0]))
    if chosen is not None and pointer is not None:
        return parse_ref(store, chosen, pointer)
    if not names:
        raise UsageError("the store has no artifacts", store.url, "correct the URL, or push an artifact first")
    more = f" and {len(names) - _MAX_LISTED:,} more" if len(names) > _MAX_LISTED else ""
    what = f"the store has {len(names):,} artifacts" if name is None else f"the store lacks {name}, and has"
    raise UsageError(f"{what}: {', '.join(names[:_MAX_LISTED])}{more}", store.url, "pass one of the names with --ref")


def pull_all(
    store: Store, ref: Ref, folder: Path, root: Path | None, replace: bool, log_every_s: float
) -> tuple[int, int]:
    """Pull an artifact into `folder`, and upstream artifacts into `root`.

    Without a root, upstream artifacts are not pulled. Inputs come first, so that an interrupted pull leaves no artifact
    without them.

    Returns:
        Number of artifacts, and bytes pulled.
    """
    own, pulled = ref.artifacts[0].folder, []
    for entry in reversed(ref.artifacts):
        if entry.folder == own or entry.folder.startswith(f"{own}/"):
            target = folder / PurePosixPath(entry.folder).relative_to(own)
        elif root is not None:
            target = root / entry.folder
        else:
            continue
        pulled.append(pull(store, entry, target, replace=replace, log_every_s=log_every_s))
    return len(pulled), sum(pulled)


def pull(store: Store, entry: Entry, folder: Path, *, replace: bool, log_every_s: float) -> int:
    """Pull one artifact into a folder; return its bytes, or 0 if sealed there.

    Raises:
        UsageError: The folder has another or a damaged artifact, and `replace` is not set.
        InputError: An object is missing or damaged; the message names it.
    """
    recover(folder)
    size = 0 if _is_there(folder, entry.digest) else _pull_missing(store, entry, folder, replace, log_every_s)
    if entry.checks is not None and read_check_results(folder, entry.digest) is None:
        durable.write_durably(check_record_path(folder), _read_small(store, object_key(entry.checks), entry.checks))
    return size


def _pull_missing(store: Store, entry: Entry, folder: Path, replace: bool, log_every_s: float) -> int:
    if (folder / FILE_NAME).exists() and not replace:
        sealed = try_read_manifest(folder)
        is_other = sealed is not None and sealed.digest != entry.digest
        what = f"the folder has another artifact, {sealed.digest}" if sealed and is_other else "the artifact is damaged"
        raise UsageError(what, folder, f"use --replace to pull {entry.digest}, or choose another folder")
    key, is_there = manifest_key(entry.manifest), functools.partial(_is_there, folder, entry.digest)
    manifest = Manifest.from_bytes(_read_small(store, key, entry.manifest), f"{store.url}/{key}")
    if manifest.digest != entry.digest or any(manifest.storage_errors()):
        raise InputError(f"not the manifest of {entry.digest}", f"{store.url}/{key}", _PUSH_AGAIN)
    seal = (manifest.kind, manifest.name, manifest.identity)
    if not manifest.storage:
        seal_in_place(folder, *seal, manifest.provenance, is_there)
        return 0
    with open_staging_dir(folder, {"pull": entry.manifest}) as staging:
        if is_there():
            staging.discard()
            return 0
        try:
            _pull_files(store, manifest, staging, log_every_s)
        except InputError:
            staging.discard_if_unstarted()
            raise
        staging.seal(*seal, manifest.storage, manifest.provenance)
    return sum(file.bytes for file in manifest.storage)


def _is_there(folder: Path, digest: str) -> bool:
    """Check whether a folder has this artifact, with files of the right sizes."""
    sealed = try_read_manifest(folder)
    if sealed is None or sealed.digest != digest:
        return False
    return not any(size_error(folder, file) for file in sealed.storage)


def _pull_files(store: Store, manifest: Manifest, staging: StagingDir, log_every_s: float) -> None:
    total = sum(file.bytes for file in manifest.storage)
    progress, lock = Progress(f"pull {manifest.name}", total, "bytes", log_every_s, _QUIET_S), threading.Lock()

    def count(more_bytes: int) -> None:
        with lock:
            progress.add(more_bytes)

    def pull_file(numbered: tuple[int, StoredFile]) -> None:
        _pull_file(store, staging, *numbered, count)

    for _ in map_in_order(pull_file, enumerate(manifest.storage), _THREADS):
        pass


def _pull_file(store: Store, staging: StagingDir, number: int, file: StoredFile, count: Callable[[int], None]) -> None:
    """Write a file in parts with receipts; raise InputError if its hash is wrong."""
    path, key, digest, done = staging.path(file.path), object_key(file.sha256), hashlib.sha256(), 0
    durable.reserve(path, file.bytes)
    while (receipt := staging.receipt(_STAGE, f"{number}-{done}")) is not None:
        done += receipt.files[0].bytes
    with open(path, "rb", buffering=0) as earlier:  # the hash of the whole file covers the parts of an earlier run
        for block in read_blocks(earlier, done):
            digest.update(block)
    count(done)
    while part := store.read(key, done, min(_PART_BYTES, file.bytes - done)) if done < file.bytes else b"":
        digest.update(part)
        durable.write_range(path, done, memoryview(part))
        sha256 = hashlib.sha256(part).hexdigest()
        written = OutputFile(file.path, 1, len(part), sha256, sha256, done)
        staging.commit(_STAGE, f"{number}-{done}", Receipt([written], {}))
        done += len(part)
        count(len(part))
    if digest.hexdigest() != file.sha256:
        for start in range(0, done, _PART_BYTES):
            staging.remove_receipt(_STAGE, f"{number}-{start}")
        raise _damaged_error(store, key, done, digest.hexdigest(), file.sha256)


def _read_small(store: Store, key: str, sha256: str) -> bytes:
    """Read an object into memory; raise InputError if its hash is wrong."""
    stored = store.pointer(key)
    data = b"" if stored is None else stored.data
    if (actual := hashlib.sha256(data).hexdigest()) != sha256:
        raise _damaged_error(store, key, len(data), actual, sha256)
    return data


def _damaged_error(store: Store, key: str, size: int, actual: str, expected: str) -> InputError:
    what = f"the object has sha256 {actual}, expected {expected}" if size else "the object is missing or empty"
    return InputError(what, f"{store.url}/{key}", _PUSH_AGAIN)
