"""Entries of a data root's removal list, which only grows.

An entry contains a hash instead of the id, URL, host or text itself. The key of the hash is the secret in
`removals/secret.json`. The list may therefore be published, but the secret must not be.
"""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from pipeline_assets.corpus.removal_key import RESTORE_FIX, create_secret, read_secret
from pipeline_assets.corpus.removals import REMOVALS_FOLDER, Selector, keyed_hash, normalize_value
from pipeline_assets.spine import durable
from pipeline_assets.spine.lock import locked
from pipeline_assets.spine.metadata_file import MetadataFormat

LIST_FILE = f"{REMOVALS_FOLDER}/list.json"  # in a data root


class RemovalEntry(msgspec.Struct, frozen=True):
    """Entry of the removal list: date, the user's reason, selector, and hex hash.

    `key` is a hash of the secret, to detect a wrong secret. Entries that earlier versions wrote have an empty `key`.
    """

    added: str
    reason: str
    selector: Selector
    hash: str
    key: str = ""


REMOVAL_LIST_FORMAT = MetadataFormat("removal list", 1 << 30, RESTORE_FIX, list[RemovalEntry])


def entry_dates(root: Path) -> dict[str, str]:
    """Return the date of each entry, by the entry's hash."""
    return {entry.hash: entry.added for entry in REMOVAL_LIST_FORMAT.read(root / LIST_FILE)}


def add_entries(root: Path, values: Iterable[tuple[Selector, str]], reason: str, date: str) -> int:
    """Add entries for ids, texts, URLs and hosts; return how many are new.

    The file is replaced in one step, so a crash adds all entries or none. Raise BuilderBusyError while another process
    adds entries, and InputError if the list or its secret is damaged.
    """
    path = root / LIST_FILE
    with locked(path):
        stored = REMOVAL_LIST_FORMAT.read(path) if path.exists() else []
        if not stored:
            create_secret(path)
        secret, key = read_secret(path, {entry.key for entry in stored})
        known, new = {entry.hash for entry in stored}, dict[str, RemovalEntry]()
        for selector, value in values:
            hashed = keyed_hash(secret, selector, normalize_value(selector, value))
            if hashed not in known:
                new[hashed] = RemovalEntry(date, reason, selector, hashed, key)
        if new:
            lines = msgspec.json.format(msgspec.json.encode([*stored, *new.values()]), indent=1)
            durable.write_durably(path, lines + b"\n")
        return len(new)
