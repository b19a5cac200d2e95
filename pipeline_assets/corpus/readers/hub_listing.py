"""Listings of the files in a hub repository at a commit: parsing and caching."""

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
from pipeline_assets.spine.metadata_file import MetadataFormat

logger = logging.getLogger("corpusmill")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}|git-sha1:[0-9a-f]{40}")
_INVALID_IN_PATH = re.compile(r"[\0-\x1f\x7f\\\ud800-\udfff]")


@dataclass(frozen=True)
class HubFile:
    """File in a hub repository: path, size in bytes and hash."""

    path: str
    size: int
    digest: str  # `sha256:…` for LFS files, otherwise `git-sha1:…`


def is_digest(text: str) -> bool:
    """Check whether a text has the form of a file hash in a listing."""
    return _DIGEST.fullmatch(text) is not None


def parse_tree_entry(entry: Mapping[str, Any]) -> HubFile:
    """Convert a hub's file entry; raise KeyError, TypeError or ValueError if invalid."""
    lfs = entry.get("lfs")
    digest = f"sha256:{lfs['oid']}" if lfs else f"git-sha1:{entry['oid']}"
    if entry["type"] != "file":
        raise ValueError(f"{entry} is not a file")
    return _check_file(HubFile(entry["path"], entry["size"], digest))


def hub_input(repo: str, commit: str, file: HubFile) -> dict[str, Any]:
    """Return a hub file's entry in the `inputs` of a manifest."""
    return {"name": f"{repo}@{commit}:{file.path}", "digest": file.digest, "bytes": file.size}


def _check_file(file: HubFile) -> HubFile:
    """Return `file` after checking path, size and hash; raise TypeError or ValueError."""
    if _INVALID_IN_PATH.search(file.path) or not {"", ".", ".."}.isdisjoint(file.path.split("/")):
        raise ValueError(f"{file.path!r} is not a path in a repository")
    if type(file.size) is not int or not 0 <= file.size < 1 << 63:
        raise ValueError(f"{file.size!r} is not a file size")
    if not is_digest(file.digest):
        raise ValueError(f"{file.digest!r} is not a file hash")
    return file


@dataclass(frozen=True)
class _Listing:
    """Cached listing, with a hash that reveals damage to the listing."""

    files: list[HubFile]
    sha256: str


_LISTING_FORMAT = MetadataFormat("listing", 1 << 30, "delete this file; the next run fetches it again", _Listing)


def write_listing(path: Path, files: Sequence[HubFile]) -> None:
    durable.write_durably(path, msgspec.json.encode(_Listing(list(files), _files_sha256(files))))


def _files_sha256(files: Sequence[HubFile]) -> str:
    return hashlib.sha256(msgspec.json.encode(files)).hexdigest()


def read_listing(path: Path) -> list[HubFile]:
    """Read a cached listing; raise FileNotFoundError or, if damaged, InputError."""
    listing = _LISTING_FORMAT.read(path)
    if _files_sha256(listing.files) != listing.sha256:
        raise InputError("the listing does not match its own hash", path, _LISTING_FORMAT.fix)
    try:
        return [*map(_check_file, listing.files)]
    except ValueError as error:
        raise InputError(str(error), path, _LISTING_FORMAT.fix) from None


def read_cached_listing(path: Path) -> list[HubFile] | None:
    """Read a cached listing; return None if it is missing or damaged."""
    try:
        return read_listing(path)
    except FileNotFoundError:
        return None
    except InputError:
        logger.warning("%s: the cached listing is damaged; fetching it again", path)
        return None
