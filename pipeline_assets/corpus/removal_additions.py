"""Additions to the removal list of a data root."""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from pipeline_assets.corpus.removal_key import create_key, read_key
from pipeline_assets.corpus.removal_list import LIST, Entry, list_path
from pipeline_assets.corpus.removals import Selector, keyed_hash, normalize_value
from pipeline_assets.spine import durable
from pipeline_assets.spine.lock import locked


def add_entries(root: Path, values: Iterable[tuple[Selector, str]], reason: str, date: str) -> int:
    """Add entries for ids, texts, URLs and hosts; return how many are new.

    The file is replaced in one step, so a crash adds all entries or none. Raise BuilderBusy while another process adds
    entries, and InputError if the list or its secret is damaged.
    """
    path = list_path(root)
    with locked(path):
        stored = LIST.read(path) if path.exists() else []
        if not stored:
            create_key(path)
        secret, key = read_key(path, {entry.key for entry in stored})
        known, new = {entry.hash for entry in stored}, dict[str, Entry]()
        for selector, value in values:
            hashed = keyed_hash(secret, selector, normalize_value(selector, value))
            if hashed not in known:
                new[hashed] = Entry(date, reason, selector, hashed, key)
        if new:
            lines = msgspec.json.format(msgspec.json.encode([*stored, *new.values()]), indent=1)
            durable.write_durably(path, lines + b"\n")
        return len(new)
