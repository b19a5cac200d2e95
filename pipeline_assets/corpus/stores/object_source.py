"""Sources in object stores, copied into the data root before they are read.

`s3://bucket/prefix` is copied to `object_cache/s3/bucket/prefix`, where the readers of local files read it.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

import pydantic

from pipeline_assets.corpus.readers.file_patterns import is_excluded
from pipeline_assets.corpus.readers.hub_configs import matching_paths
from pipeline_assets.corpus.readers.source_folder import SourceFolder, input_folder_path
from pipeline_assets.corpus.stores.download import DOWNLOAD_STAGE, download_all, missing_objects, receipt_name
from pipeline_assets.corpus.stores.object_store import RERUN_FIX, ObjectStore, StoredObject
from pipeline_assets.spine import durable
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.errors import InputError, RetryableError, UsageError
from pipeline_assets.spine.folder_lock import lock_folder
from pipeline_assets.spine.manifest import Manifest, is_inside_folder
from pipeline_assets.spine.staging import StagingView

OBJECT_CACHE_FOLDER = "object_cache"  # relative to a data root
VERSIONS_KEY = "object_versions"  # key of the provenance of a pin
_URL_PATTERN = re.compile(r"(s3|gs|az)://([^/@?]+)/?([^@?]*)")
_CACHED_PATH_PATTERN = re.compile(rf"(?:.*/)?{OBJECT_CACHE_FOLDER}/(s3|gs|az)/(.+)")


def is_object_url(path: str) -> bool:
    return _URL_PATTERN.fullmatch(path) is not None


def source_path(path: str) -> Path:
    """Return a source's local folder: the path itself, or a URL's folder of copies.

    The folder of copies is relative to the data root.
    """
    match = _URL_PATTERN.fullmatch(path)
    return Path(path) if match is None else Path(OBJECT_CACHE_FOLDER, match[1], match[2], match[3].strip("/"))


def check_source_path(path: str) -> str:
    """Return `path` unchanged; ValueError if it is an unsupported or invalid URL."""
    if path.startswith("hf://buckets/"):
        raise ValueError(f"must not be a hub bucket, which has no commits to pin, got {path!r}")
    match = _URL_PATTERN.fullmatch(path)
    if "://" in path and (match is None or not is_inside_folder(f"{match[2]}/{match[3]}".rstrip("/"))):
        redacted = re.sub(r"(?<=://).*(?=@)|(?<=\?).*", "…", path)
        raise ValueError(f"must be a folder, or s3://, gs:// or az:// with BUCKET/PREFIX alone, got {redacted!r}")
    return path


SourcePath = Annotated[str, pydantic.AfterValidator(check_source_path)]
"""Recipe key with the path of a source."""


def source_url(folder: Path) -> str | None:
    """Return the URL that a folder of copies belongs to; None for any other folder."""
    match = _CACHED_PATH_PATTERN.fullmatch(folder.as_posix())
    return None if match is None else f"{match[1]}://{match[2]}"


@dataclass(frozen=True)
class CopiesFolder(SourceFolder):
    """Folder of object copies; `restore_source` fetches the objects that a pin needs.

    A pin names its objects and their versions, so missing copies, and copies for other pins, are no changes.
    """

    def describe_changes(self, root: Path, manifest: Manifest) -> str | None:
        """Describe the pin's URL if it is not the URL of this folder, or return None."""
        pinned_path, url = input_folder_path(manifest, root), source_url((root / self.path).absolute())
        if VERSIONS_KEY not in manifest.provenance or pinned_path is None:
            return super().describe_changes(root, manifest)
        pinned_url = source_url(pinned_path)
        return None if pinned_url == url else f"the objects were read from {pinned_url}, the recipe has {url}"

    def describe_changed_files(self, manifest: Manifest) -> str | None:
        """Describe changed copies of the pin's objects, or return None."""
        names = tuple(entry["name"] for entry in manifest.identity.inputs)
        return SourceFolder(self.path, names).describe_changed_files(manifest)


def source_folder(path: str, patterns: tuple[str, ...], exclude: tuple[str, ...] = ()) -> SourceFolder:
    """Return the folder of the files that a source selects, or of their copies."""
    folder_class = CopiesFolder if is_object_url(path) else SourceFolder
    return folder_class(source_path(path), patterns, exclude)


def _matching_paths(paths: Iterable[str], source: SourceFolder, url: str) -> list[str]:
    return sorted(name for name in matching_paths(paths, source.patterns, url) if not is_excluded(name, source.exclude))


def _parent_folders(names: Iterable[str]) -> set[str]:
    """Return the folders of object names; "" is the folder of all names."""
    return {"", *(str(parent) for name in names for parent in PurePosixPath(name).parents)}


def list_objects(url: str, source: SourceFolder) -> list[StoredObject]:
    """List the objects that a source selects, sorted by name; UsageError if none.

    Empty objects that stand for folders, as the consoles of stores create them, are left out.
    """
    objects = {stored.name: stored for stored in ObjectStore.open(url).list_objects()}
    folders = _parent_folders(objects)
    files = [name for name, stored in objects.items() if stored.bytes or name not in folders]
    names = _matching_paths(files, source, url)
    if not names:
        what = f"no object matches {', '.join(source.patterns)}"
        raise UsageError(what, url, "correct `files`, or the URL in `path`")
    return [objects[name] for name in names]


def fetch_source(url: str, source: SourceFolder, settings: RunSettings) -> dict[str, Any]:
    """Copy the current versions of matching objects; return versions as provenance.

    Copies whose objects the store no longer has are deleted, since readers would read them. Raise InputError if an
    object changes during the copy, or if an object's name is not a valid file name.
    """
    objects, folder = list_objects(url, source), source.path
    copied = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    for name in {*_matching_paths(copied, source, url)} - {stored.name for stored in objects}:
        durable.remove(folder / name)
    _copy_objects(url, objects, folder, settings)
    return {VERSIONS_KEY: {stored.name: stored.version for stored in objects}}


def check_copies(folder: Path, inputs: Iterable[Mapping[str, Any]]) -> None:
    """Raise RetryableError if a copy no longer has the hash recorded at its download.

    The next run then fetches the object again. `inputs` are manifest entries of the copies in `folder`.
    """
    view = StagingView(folder)
    for entry in inputs:
        receipt = view.read_receipt(DOWNLOAD_STAGE, name := receipt_name(entry["name"]))
        if receipt is None or f"sha256:{receipt.files[0].sha256}" != entry["digest"]:
            view.remove_receipt(DOWNLOAD_STAGE, name)
            what = "the copy no longer has the bytes of its object"
            raise RetryableError(what, folder / entry["name"], "run the same command again to fetch it again")


def restore_source(folder: Path, pin: Manifest, settings: RunSettings) -> None:
    """Fetch a source's pinned object versions if `folder` does not contain them.

    Copies that changed since the pin are fetched again. Do nothing for a local folder. Raise InputError if the store
    no longer has an object in its pinned version.
    """
    if (url := source_url(folder)) is not None and (objects := _pinned_objects(pin)):
        _copy_objects(url, objects, folder, settings)


def count_missing_bytes(folder: Path, pin: Manifest) -> int:
    """Count the bytes that `restore_source` will fetch."""
    missing = missing_objects(_pinned_objects(pin), StagingView(folder)) if source_url(folder) is not None else []
    return sum(stored.bytes for stored in missing)


def _pinned_objects(pin: Manifest) -> list[StoredObject]:
    """List the objects of a pin in their pinned versions; none for files of a folder."""
    if (versions := pin.provenance.get(VERSIONS_KEY)) is None:
        return []
    listed = zip(pin.identity.inputs, pin.provenance["modified_ns"], strict=True)
    return [
        StoredObject(entry["name"], entry["bytes"], versions[entry["name"]], modified) for entry, modified in listed
    ]


def _copy_objects(url: str, objects: Sequence[StoredObject], folder: Path, settings: RunSettings) -> None:
    folders = _parent_folders(stored.name for stored in objects)
    for stored in objects:
        if not is_inside_folder(stored.name) or any(part.startswith(".") for part in stored.name.split("/")):
            raise InputError(f"the name {stored.name!r} cannot be a file name below a folder", url, "rename the object")
        if stored.name in folders:
            what = f"the name {stored.name!r} is also the folder of other objects"
            raise InputError(what, url, "rename the object, or narrow `files`")
    durable.make_folder(folder)
    with lock_folder(folder):  # another process may copy the same objects
        missing = {stored.name: stored for stored in missing_objects(objects, StagingView(folder))}
        if not missing:
            return
        store, title = ObjectStore.open(url), settings.title(f"fetch {url}")
        copies = download_all(store, missing, StagingView(folder), title, settings.fetch_threads, settings.log_every_s)
        for stored, copy in zip(missing.values(), copies, strict=True):
            if copy.bytes < stored.bytes:
                where = f"{url}/{stored.name}"
                raise InputError("the object is missing, or shorter than it was listed", where, RERUN_FIX)
