"""Pull of sealed artifacts from a store.

Files are hashed while they are written. An interrupted pull continues, because the staging directory has receipts for
the finished parts of files.
"""

import functools
import hashlib
from pathlib import Path, PurePosixPath

from pipeline_assets.corpus.stores.download import STAGE, Store, download_all, receipt_name
from pipeline_assets.corpus.stores.object_store import StoredObject
from pipeline_assets.spine import durable
from pipeline_assets.spine.artifact import check_record_path, read_check_results, size_error, try_read_manifest
from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.spine.manifest import FILE_NAME, Manifest
from pipeline_assets.spine.opening import open_staging_dir, recover, seal_in_place
from pipeline_assets.trust.push import REFS, Entry, Ref, manifest_key, object_key, parse_ref, ref_key

_THREADS = 8
_MAX_LISTED = 20
_PUSH_AGAIN = "delete the object, and push the artifact again from a data root that has it"


def find_ref(store: Store, name: str | None, default: str | None) -> Ref:
    """Return a pointer by name; without a name, `default` or the only one.

    Raise UsageError that lists the names if no pointer is found, or if there are several.
    """
    chosen = default if name is None else name
    if chosen is not None and (pointer := store.pointer(ref_key(chosen))) is not None:
        return parse_ref(store, chosen, pointer)
    names = [key.removeprefix(f"{REFS}/").removesuffix(".json") for key in store.keys(REFS)]
    if name is None and len(names) == 1:
        return find_ref(store, names[0], None)
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
        objects = {file.path: StoredObject(object_key(file.sha256), file.bytes) for file in manifest.storage}
        copies = download_all(store, objects, staging, f"pull {manifest.name}", _THREADS, log_every_s)
        for file, copy in zip(manifest.storage, copies, strict=True):
            if copy.sha256 != file.sha256:
                staging.remove_receipt(STAGE, receipt_name(file.path))
                raise _damaged_error(store, object_key(file.sha256), copy.bytes, copy.sha256, file.sha256)
        staging.seal(*seal, manifest.storage, manifest.provenance)
    return sum(file.bytes for file in manifest.storage)


def _is_there(folder: Path, digest: str) -> bool:
    """Check whether a folder has this artifact, with files of the right sizes."""
    sealed = try_read_manifest(folder)
    if sealed is None or sealed.digest != digest:
        return False
    return not any(size_error(folder, file) for file in sealed.storage)


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
