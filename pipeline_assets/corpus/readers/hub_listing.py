"""Files of a repo at one hub commit, as the hub lists them and as the cache keeps the listing."""

import hashlib
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from pipeline_assets.spine import durable
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.files import MetadataFile

logger = logging.getLogger("corpusmill")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}|git-sha1:[0-9a-f]{40}")
_INVALID_IN_PATH = re.compile(r"[\0-\x1f\x7f\\\ud800-\udfff]")


@dataclass(frozen=True)
class HubFile:
    """One file at a commit: its path, its size in bytes and its hash, `sha256:…` for LFS files, else `git-sha1:…`."""

    path: str
    size: int
    digest: str


def is_digest(text: str) -> bool:
    """Whether a hash is written as listings have it."""
    return _DIGEST.fullmatch(text) is not None


def listed_file(entry: Mapping[str, Any]) -> HubFile:
    """A file from an entry of the tree.

    Raises:
        KeyError, TypeError, ValueError: it is no such entry.
    """
    lfs = entry.get("lfs")
    digest = f"sha256:{lfs['oid']}" if lfs else f"git-sha1:{entry['oid']}"
    if entry["type"] != "file":
        raise ValueError(f"{entry} is no file")
    return _checked_file(HubFile(entry["path"], entry["size"], digest))


def hub_entry(dataset: str, commit: str, file: HubFile) -> dict[str, Any]:
    """A file of a hub dataset at a commit, as a manifest lists it; of a model, `dataset` is what `as_model` says."""
    return {"name": f"{dataset}@{commit}:{file.path}", "digest": file.digest, "bytes": file.size}


def _checked_file(file: HubFile) -> HubFile:
    """Raise TypeError or ValueError if no listing may have the file: below its repo, of a size, with a hash."""
    if _INVALID_IN_PATH.search(file.path) or not {"", ".", ".."}.isdisjoint(file.path.split("/")):
        raise ValueError(f"{file.path!r} is no path of a repo")
    if type(file.size) is not int or not 0 <= file.size < 1 << 63:
        raise ValueError(f"{file.size!r} is no size")
    if not is_digest(file.digest):
        raise ValueError(f"{file.digest!r} is no hash")
    return file


@dataclass(frozen=True)
class _Listing:
    """A listing as the cache keeps it. It decides which bytes are read: its hash says that it is as it was written."""

    files: list[HubFile]
    sha256: str


_LISTING_FILE = MetadataFile("listing", 1 << 30, "remove it: it is asked for again", _Listing)


def write_listing(path: Path, files: Sequence[HubFile]) -> None:
    """Writes a listing for the cache."""
    durable.write_durably(path, msgspec.json.encode(_Listing(list(files), _entry_sha256(files))))


def _entry_sha256(files: Sequence[HubFile]) -> str:
    return hashlib.sha256(msgspec.json.encode(files)).hexdigest()


def read_listing(path: Path) -> list[HubFile]:
    """A cached listing.

    Raises:
        FileNotFoundError: there is none.
        InputError: it is damaged, or names what no repo has.
    """
    listing = _LISTING_FILE.read(path)
    if _entry_sha256(listing.files) != listing.sha256:
        raise InputError("it is not as it was written", path, _LISTING_FILE.fix)
    try:
        return [*map(_checked_file, listing.files)]
    except ValueError as error:
        raise InputError(str(error), path, _LISTING_FILE.fix) from None


def read_cached_listing(path: Path) -> list[HubFile] | None:
    """A cached listing; None where there is none, or a damaged one."""
    try:
        return read_listing(path)
    except FileNotFoundError:
        return None
    except InputError:
        logger.warning("%s: the cached listing is damaged; it is asked for again", path)
        return None
