"""Reader of a data root's removal list, for builds."""

import functools
import hashlib
import os
from dataclasses import replace
from pathlib import Path

from pipeline_assets.corpus.removal_entries import LIST_FILE, REMOVAL_LIST_FORMAT
from pipeline_assets.corpus.removal_key import read_secret
from pipeline_assets.corpus.removals import NO_REMOVALS, Removals, Selector
from pipeline_assets.spine.errors import RetryableError


def read_removal_list(root: Path) -> Removals:
    """Read a data root's removal list: empty if missing, InputError if damaged.

    Raise RetryableError if the folder or the file is a link to a missing disk: builds would keep removed rows.
    """
    path = root / LIST_FILE
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        for link in (path.parent, path):
            if link.is_symlink() and not link.exists():
                what = "the removal list is behind a link to a missing file"
                raise RetryableError(what, link, "mount the disk of the link, or restore the folder") from None
        return NO_REMOVALS
    listed, keys = _read_entries(path, status.st_ino, status.st_size, status.st_mtime_ns)
    return replace(listed, secret=read_secret(path, keys)[0])


@functools.lru_cache(maxsize=8)
def _read_entries(path: Path, inode: int, size: int, modified_ns: int) -> tuple[Removals, set[str]]:
    hashed, stored, positions, entries = hashlib.sha256(), REMOVAL_LIST_FORMAT.read(path), [""], dict[str, Selector]()
    for entry in stored:
        hashed.update(f"{entry.selector} {entry.hash}\n".encode())
        # A repeated entry, as in a list that was merged by hand, has a position too: its key here matches no row.
        entries[f"{entry.hash} {len(positions)}" if entry.hash in entries else entry.hash] = entry.selector
        positions.append(hashed.hexdigest())
    return Removals(entries=entries, positions=tuple(positions)), {entry.key for entry in stored}
