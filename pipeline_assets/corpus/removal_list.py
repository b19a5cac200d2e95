"""Removal list of a data root, which only grows.

An entry contains a hash instead of the id, URL, host or text itself. The key of the hash is the secret in
`removals/secret.json`. So the list can be published, but not the secret.
"""

import functools
import hashlib
import os
import secrets
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import msgspec

from pipeline_assets.corpus.removals import (
    NO_REMOVALS,
    REMOVALS_FOLDER,
    Removals,
    Selector,
    keyed_hash,
    normalize_value,
)
from pipeline_assets.spine import durable
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.lock import locked
from pipeline_assets.spine.metadata_file import MetadataFormat

LIST_FILE = f"{REMOVALS_FOLDER}/list.json"  # in a data root
_SECRET_FILE = f"{REMOVALS_FOLDER}/secret.json"
_FIX = "restore it from a backup"


class RemovalEntry(msgspec.Struct, frozen=True):
    """Entry of the removal list: date, the user's reason, selector, and hex hash.

    `key` is a hash of the secret, to detect a wrong secret. Entries that earlier versions wrote have an empty `key`.
    """

    added: str
    reason: str
    selector: Selector
    hash: str
    key: str = ""


_LIST_FORMAT = MetadataFormat("removal list", 1 << 30, _FIX, list[RemovalEntry])
_SECRET_FORMAT: MetadataFormat[str] = MetadataFormat("key of the removal list", 1024, _FIX, str)


def read_removal_list(root: Path) -> Removals:
    """Read a data root's removal list: empty if missing, InputError if damaged."""
    path = root / LIST_FILE
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return NO_REMOVALS
    listed, keys = _read_entries(path, status.st_ino, status.st_size, status.st_mtime_ns)
    return replace(listed, secret=_read_secret(root, keys)[0])


@functools.lru_cache(maxsize=8)
def _read_entries(path: Path, inode: int, size: int, modified_ns: int) -> tuple[Removals, set[str]]:
    hashed, stored, positions, entries = hashlib.sha256(), _LIST_FORMAT.read(path), [""], dict[str, Selector]()
    for entry in stored:
        hashed.update(f"{entry.selector} {entry.hash}\n".encode())
        # A repeated entry, as in a list that was merged by hand, has a position too: its key here matches no row.
        entries[f"{entry.hash} {len(positions)}" if entry.hash in entries else entry.hash] = entry.selector
        positions.append(hashed.hexdigest())
    return Removals(entries=entries, positions=tuple(positions)), {entry.key for entry in stored}


def entry_dates(root: Path) -> dict[str, str]:
    """Return the date of each entry, by the entry's hash."""
    return {entry.hash: entry.added for entry in _LIST_FORMAT.read(root / LIST_FILE)}


def add_entries(root: Path, values: Iterable[tuple[Selector, str]], reason: str, date: str) -> int:
    """Add entries for ids, texts, URLs and hosts; return how many are new.

    The file is replaced in one step, so a crash adds all entries or none. Raise BuilderBusyError while another process
    adds entries, and InputError if the list or its secret is damaged.
    """
    path, secret_path = root / LIST_FILE, root / _SECRET_FILE
    with locked(path):
        stored = _LIST_FORMAT.read(path) if path.exists() else []
        if not stored and not secret_path.exists():
            durable.write_durably(secret_path, msgspec.json.encode(secrets.token_hex(32)), mode=0o600)
        secret, key = _read_secret(root, {entry.key for entry in stored})
        known, new = {entry.hash for entry in stored}, dict[str, RemovalEntry]()
        for selector, value in values:
            hashed = keyed_hash(secret, selector, normalize_value(selector, value))
            if hashed not in known:
                new[hashed] = RemovalEntry(date, reason, selector, hashed, key)
        if new:
            lines = msgspec.json.format(msgspec.json.encode([*stored, *new.values()]), indent=1)
            durable.write_durably(path, lines + b"\n")
        return len(new)


def _read_secret(root: Path, entry_keys: set[str]) -> tuple[bytes, str]:
    """Return the secret and its hash, the `key` of new entries.

    `entry_keys` are the keys of existing entries. Raise InputError if the secret is missing or damaged, or is not the
    secret of these entries.
    """
    file = root / _SECRET_FILE
    try:
        secret = bytes.fromhex(_SECRET_FORMAT.read(file))
        key = hashlib.blake2b(key=secret, digest_size=8).hexdigest()
    except (FileNotFoundError, ValueError):
        raise InputError("the key is missing or damaged, so no entry can match", file, _FIX) from None
    if entry_keys - {"", key}:
        raise InputError("the key is not the one of the list, so no entry can match", file, _FIX)
    return secret, key
