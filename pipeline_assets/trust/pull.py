"""Pull of sealed artifacts from a store.

Files are hashed while they are written. An interrupted pull continues, because the staging directory has receipts for
the finished parts of files.
"""

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath

from pipeline_assets.corpus.stores.download import DOWNLOAD_STAGE, Store, download_all, receipt_name
from pipeline_assets.corpus.stores.object_store import StoredObject
from pipeline_assets.spine import durable
from pipeline_assets.spine.artifact import (
    check_record_path,
    find_damage,
    member_digests,
    read_check_results,
    size_error,
    try_read_manifest,
)
from pipeline_assets.spine.errors import InputError, RetryableError, UsageError
from pipeline_assets.spine.manifest import MANIFEST_FILE, Manifest, is_inside_folder, is_seal_intact
from pipeline_assets.spine.opening import open_staging_dir, recover, seal_in_place
from pipeline_assets.spine.staging import PULLED_KEY
from pipeline_assets.trust.push import REFS_FOLDER, Ref, RefEntry, manifest_key, object_key, parse_ref, ref_key

_THREADS = 8
_MAX_LISTED_NAMES = 20
_PUSH_FIX = "push the artifact again from a data root that has it"


def find_ref(store: Store, name: str | None, default: str | None) -> Ref:
    """Return the pointer `name`, or the pointer `default` if `name` is None.

    If `default` is missing, return the store's only pointer. If no pointer fits, UsageError lists the store's pointers.
    """
    chosen = default if name is None else name
    if chosen is not None and is_inside_folder(chosen) and (pointer := store.read_pointer(ref_key(chosen))) is not None:
        return parse_ref(store, chosen, pointer)
    names = [key.removeprefix(f"{REFS_FOLDER}/").removesuffix(".json") for key in store.list_keys(REFS_FOLDER)]
    if name is None and len(names) == 1:
        return find_ref(store, names[0], None)
    if not names:
        raise UsageError("the store has no artifacts", store.url, "correct the URL, or push an artifact first")
    more = f" and {len(names) - _MAX_LISTED_NAMES:,} more" if len(names) > _MAX_LISTED_NAMES else ""
    what = (
        f"the store has {len(names):,} artifacts" if name is None else f"the store lacks {name or repr(name)}, and has"
    )
    listed = ", ".join(names[:_MAX_LISTED_NAMES])
    raise UsageError(f"{what}: {listed}{more}", store.url, "pass one of the names with --ref")


@dataclasses.dataclass(frozen=True)
class PullResult:
    """Result of a pull."""

    artifacts: int  # number of pulled artifacts
    present_artifacts: int  # number of artifacts that were present before
    bytes: int  # number of pulled bytes
    manifests: tuple[Manifest, ...]


def pull_all(store: Store, ref: Ref, folder: Path, root: Path | None, replace: bool, log_every_s: float) -> PullResult:
    """Pull a pointer's artifact into `folder`, and its inputs into `root`, if set.

    Inputs come first, so that an interrupted pull leaves no artifact without its inputs. An artifact is not pulled if
    the files in its folder have the sealed sizes and, with `replace`, also the sealed content.

    Raises:
        UsageError: A folder has a different or damaged artifact and `replace` is not set, has other files, or is inside
            another artifact; or two artifacts need the same folder. No artifact was pulled.
        InputError: An object is missing or damaged; the message names it.
    """
    main, folder, entries = ref.artifacts[0].folder, folder.parent.resolve() / folder.name, dict[Path, RefEntry]()
    for entry in reversed(ref.artifacts):
        is_own = entry.belongs_to(ref.artifacts[0])
        if is_own or root is not None:
            path = PurePosixPath(entry.folder)
            target = folder / path.relative_to(main) if is_own else Path(root or "", path)
            if target in entries:
                what = f"both {main} and its upstream artifact {entries[target].folder} would be in this folder"
                raise UsageError(what, target, "choose another folder")
            entries[target] = entry
    is_present = {
        target: functools.partial(_is_present, target, entry.digest, replace) for target, entry in entries.items()
    }
    for target in entries:
        recover(target)
    missing = {target: _read_pushed_manifest(store, entries[target]) for target in entries if not is_present[target]()}
    for target, manifest in reversed(missing.items()):
        _raise_if_unsafe(target, manifest, entries, replace)
    for target, entry in entries.items():
        if target in missing:
            _pull_artifact(store, missing[target], entry.manifest, target, is_present[target], log_every_s)
        if entry.checks is not None and read_check_results(target, entry.digest) is None:
            record = _read_object(store, object_key(entry.checks), entry.checks)
            durable.write_durably(check_record_path(target), record)
    size = sum(file.bytes for manifest in missing.values() for file in manifest.storage)
    return PullResult(len(missing), len(entries) - len(missing), size, tuple(missing.values()))


def _read_pushed_manifest(store: Store, entry: RefEntry) -> Manifest:
    key = manifest_key(entry.manifest)
    where = f"{store.url}/{key}"
    manifest = Manifest.from_bytes(_read_object(store, key, entry.manifest), where)
    if manifest.digest != entry.digest or any(manifest.storage_errors()):
        raise InputError(f"not the manifest of {entry.digest}", where, f"delete the object, and {_PUSH_FIX}")
    return manifest


def _raise_if_unsafe(folder: Path, manifest: Manifest, entries: Mapping[Path, RefEntry], replace: bool) -> None:
    """Raise UsageError if a pull into the folder would replace or damage other files."""
    if folder.name.startswith("."):  # scans skip such names, and remove those of leftovers
        raise UsageError("the name of an artifact must not begin with a dot", folder, "choose another folder")
    if folder.is_symlink() and not folder.exists():
        raise UsageError("expected a folder, got a broken link", folder, "choose another folder, or remove the link")
    is_sealed = (folder / MANIFEST_FILE).exists()
    for parent in folder.parents:
        name, outer = folder.relative_to(parent).as_posix(), None if parent in entries else try_read_manifest(parent)
        is_other = outer is not None and member_digests(outer).get(name) != manifest.digest
        if is_other or (parent in entries and entries[parent].folder + f"/{name}" != entries[folder].folder):
            raise UsageError(f"the folder is inside the artifact {parent}", folder, "choose another folder")
    if folder.exists() and not (is_sealed and manifest.storage):  # else the seal replaces the whole folder
        named = [MANIFEST_FILE, *(path.name for path in entries if path.parent == folder)]
        for path in sorted(folder.iterdir(), key=lambda path: (path.name.startswith("."), path.name)):
            if not any(path.name == name or path.name.startswith(f".{name}.") for name in named):
                what = f"the folder has files that are not part of the artifact, such as {path.name}"
                raise UsageError(what, folder, "choose another folder" + ", or move them away" * (not is_sealed))
    if is_sealed and not replace:
        sealed = try_read_manifest(folder)
        is_other = sealed is not None and sealed.digest != manifest.digest
        what = f"the folder has another artifact, {sealed.digest}" if sealed and is_other else "the artifact is damaged"
        raise UsageError(what, folder, f"use --replace to pull {manifest.digest}, or choose another folder")


def _pull_artifact(
    store: Store,
    manifest: Manifest,
    manifest_sha256: str,
    folder: Path,
    is_present: Callable[[], bool],
    log_every_s: float,
) -> None:
    """Pull one artifact; `manifest_sha256` is the hash of its manifest in the store."""
    manifest = dataclasses.replace(manifest, provenance={**manifest.provenance, PULLED_KEY: store.url})
    if not manifest.storage:
        seal_in_place(folder, manifest, is_present)
        return
    with open_staging_dir(folder, {PULLED_KEY: manifest_sha256}) as staging:
        if is_present():
            staging.discard()
            return
        objects = {file.path: StoredObject(object_key(file.sha256), file.bytes) for file in manifest.storage}
        copies = download_all(store, objects, staging, f"pull {manifest.name}", _THREADS, log_every_s)
        for file, copy in zip(manifest.storage, copies, strict=True):
            if copy.sha256 != file.sha256:
                staging.remove_receipt(DOWNLOAD_STAGE, receipt_name(file.path))
                raise _damaged_error(store, object_key(file.sha256), copy.bytes, copy.sha256, file.sha256)
        for damage in find_damage(staging.folder, manifest):  # checks do not run after a pull
            staging.remove_receipt(DOWNLOAD_STAGE, receipt_name(damage.path))
            raise RetryableError(damage.what, staging.folder / damage.path, "pull it again")
        staging.seal(manifest)


def _is_present(folder: Path, digest: str, hashes_files: bool) -> bool:
    """Check whether a folder has an artifact, by the sizes or hashes of its files."""
    sealed = try_read_manifest(folder)
    if sealed is None or sealed.digest != digest or not is_seal_intact((folder / MANIFEST_FILE).read_bytes()):
        return False
    damage = find_damage(folder, sealed) if hashes_files else (size_error(folder, file) for file in sealed.storage)
    return not any(damage)


def _read_object(store: Store, key: str, sha256: str) -> bytes:
    """Read an object into memory; raise InputError if it is missing or damaged."""
    stored = store.read_pointer(key)
    data = b"" if stored is None else stored.content
    if (actual := hashlib.sha256(data).hexdigest()) != sha256:
        raise _damaged_error(store, key, len(data), actual, sha256)
    return data


def _damaged_error(store: Store, key: str, size: int, actual: str, expected: str) -> InputError:
    where = f"{store.url}/{key}"
    if not size:
        return InputError("the object is missing or empty", where, f"delete it if it exists, and {_PUSH_FIX}")
    what = f"the object has sha256 {actual}, expected {expected}"
    return InputError(what, where, f"delete the object, and {_PUSH_FIX}")
