"""Removal list of a data root, which is only ever extended.

The list is `removals/list.json`. An entry has no id, URL or text in clear: its hash is keyed with
`removals/secret.json`, so the list can be published, but not the secret.
"""

import functools
import hashlib
import os
from dataclasses import replace
from pathlib import Path

import msgspec

from pipeline_assets.corpus.removal_key import RESTORE, read_key
from pipeline_assets.corpus.removals import NO_REMOVALS, REMOVALS, Removals, Selector
from pipeline_assets.spine.metadata_file import MetadataFile


class Entry(msgspec.Struct, frozen=True):
    """Entry of the list: date, reason in the user's words, selector, and hex hash.

    `key` is a hash of the secret, by which a wrong secret is recognized; earlier entries lack it.
    """

    added: str
    reason: str
    selector: Selector
    hash: str
    key: str = ""


LIST: MetadataFile[list[Entry]] = MetadataFile("removal list", 1 << 30, RESTORE, list[Entry])


def list_path(root: Path) -> Path:
    return root / REMOVALS / "list.json"


def read_list(root: Path) -> Removals:
    """Read a data root's removal list, empty without a file; InputError if damaged."""
    path = list_path(root)
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return NO_REMOVALS
    listed, keys = _read_list(path, status.st_ino, status.st_size, status.st_mtime_ns)
    return replace(listed, secret=read_key(path, keys)[0])


@functools.lru_cache(maxsize=8)
def _read_list(path: Path, inode: int, size: int, modified_ns: int) -> tuple[Removals, set[str]]:
    hashed, stored, positions, entries = hashlib.sha256(), LIST.read(path), [""], dict[str, Selector]()
    for entry in stored:
        hashed.update(f"{entry.selector} {entry.hash}\n".encode())
        # A repeated entry, as in a list that was merged by hand, has a position too: its key here matches no row.
        entries[f"{entry.hash} {len(positions)}" if entry.hash in entries else entry.hash] = entry.selector
        positions.append(hashed.hexdigest())
    return Removals(entries=entries, positions=tuple(positions)), {entry.key for entry in stored}


def entry_dates(root: Path) -> dict[str, str]:
    """Return the date of each entry by its hash."""
    return {entry.hash: entry.added for entry in LIST.read(list_path(root))}
