"""Removal list of a data root, which is only ever extended.

The list is `removals/list.json`. An entry has no id, URL or text in clear: its hash is keyed with
`removals/secret.json`, so the list can be published, but not the secret.
"""

import functools
import hashlib
import os
import secrets
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import msgspec

from pipeline_assets.corpus.removals import NO_REMOVALS, REMOVALS, Removals, Selector, keyed_hash, normalize_value
from pipeline_assets.spine import durable
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.lock import locked
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


_FIX = "restore it from a backup"
_LIST: MetadataFile[list[Entry]] = MetadataFile("removal list", 1 << 30, _FIX, list[Entry])
_SECRET: MetadataFile[str] = MetadataFile("key of the removal list", 1024, _FIX, str)


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
    return replace(listed, secret=_read_secret(path, keys)[0])


@functools.lru_cache(maxsize=8)
def _read_list(path: Path, inode: int, size: int, modified_ns: int) -> tuple[Removals, set[str]]:
    hashed, stored, positions, entries = hashlib.sha256(), _LIST.read(path), [""], dict[str, Selector]()
    for entry in stored:
        hashed.update(f"{entry.selector} {entry.hash}\n".encode())
        # A repeated entry, as in a list that was merged by hand, has a position too: its key here matches no row.
        entries[f"{entry.hash} {len(positions)}" if entry.hash in entries else entry.hash] = entry.selector
        positions.append(hashed.hexdigest())
    return Removals(entries=entries, positions=tuple(positions)), {entry.key for entry in stored}


def entry_dates(root: Path) -> dict[str, str]:
    """Return the date of each entry by its hash."""
    return {entry.hash: entry.added for entry in _LIST.read(list_path(root))}


def _read_secret(path: Path, keys: set[str]) -> tuple[bytes, str]:
    """Return the secret of a list and its hash, the `key` of new entries.

    `keys` are the keys of existing entries. Raise InputError if the secret is missing or damaged, or does not belong
    to these entries.
    """
    file = path.with_name("secret.json")
    try:
        secret = bytes.fromhex(_SECRET.read(file))
        key = hashlib.blake2b(key=secret, digest_size=8).hexdigest()
    except (FileNotFoundError, ValueError):
        raise InputError("the key is missing or damaged, so no entry can match", file, _FIX) from None
    if keys - {"", key}:
        raise InputError("the key is not the one of the list, so no entry can match", file, _FIX)
    return secret, key


def add_entries(root: Path, values: Iterable[tuple[Selector, str]], reason: str, date: str) -> int:
    """Add entries for ids, texts, URLs and hosts; return how many are new.

    The file is replaced in one step, so a crash adds all entries or none. Raise BuilderBusy while another process adds
    entries, and InputError if the list or its secret is damaged.
    """
    path = list_path(root)
    with locked(path):
        stored, key_file = _LIST.read(path) if path.exists() else [], path.with_name("secret.json")
        if not stored and not key_file.exists():
            durable.write_durably(key_file, msgspec.json.encode(secrets.token_hex(32)), mode=0o600)
        secret, key = _read_secret(path, {entry.key for entry in stored})
        known, new = {entry.hash for entry in stored}, dict[str, Entry]()
        for selector, value in values:
            hashed = keyed_hash(secret, selector, normalize_value(selector, value))
            if hashed not in known:
                new[hashed] = Entry(date, reason, selector, hashed, key)
        if new:
            lines = msgspec.json.format(msgspec.json.encode([*stored, *new.values()]), indent=1)
            durable.write_durably(path, lines + b"\n")
        return len(new)
