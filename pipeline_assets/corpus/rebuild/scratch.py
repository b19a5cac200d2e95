"""Where a rebuild is made: a folder below the data root that nothing takes for an artifact.

`rebuilds/<name>.unfinished` is built in, and gone on with after a crash if the same program does the same. What is kept
of a finished rebuild is `rebuilds/<name>`, and `rebuilds/<name>.replaced` is what a copy took the place of. All of it
may be deleted at any time.
"""

import contextlib
import datetime
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline_assets.corpus.spine import durable
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.lock import Builder, locked, owner_of
from pipeline_assets.corpus.spine.own_files import OwnFile
from pipeline_assets.corpus.spine.usage import folder_bytes

FOLDER = "rebuilds"
_TICKET = "rebuild.json"
_UNFINISHED = ".unfinished"
_TICKET_FILE: OwnFile[Any] = OwnFile("ticket", 256 << 20, "remove the folder", dict[str, Any])


@dataclass(frozen=True)
class Scratch:
    """An open scratch folder. `kept` is where it goes if it is to be kept."""

    folder: Path
    kept: Path

    def end(self) -> None:
        """Nothing more is built: after a crash from here on, the next rebuild starts clean."""
        durable.remove(self.folder / _TICKET)

    def keep(self) -> None:
        """The folder has its lasting name, in the place of one that was kept before."""
        self.end()
        durable.remove(self.kept)
        durable.rename(self.folder, self.kept)

    def remove(self) -> None:
        """The folder is gone."""
        self.end()
        durable.remove(self.folder)


@contextlib.contextmanager
def scratch_folder(root: Path, name: str, ticket: Mapping[str, Any]) -> Iterator[Scratch]:
    """The scratch folder of a rebuild, alone.

    Args:
        ticket: what is rebuilt and with what; a folder that was begun under another ticket is thrown away, since its
            shards would be those of another program.
    Raises:
        InputError: another process does the same rebuild.
    """
    kept = root / FOLDER / name
    folder = kept.with_name(name + _UNFINISHED)
    data = json.dumps(ticket, sort_keys=True).encode()
    with locked(kept) as lock:
        if not _has_ticket(folder, data):
            durable.remove(folder / _TICKET)
            durable.remove(folder)
            durable.make_folder(folder)
            durable.write_durably(folder / _TICKET, data)
        yield Scratch(folder, kept)
        durable.remove(lock.path)


def _has_ticket(folder: Path, ticket: bytes) -> bool:
    try:
        return _TICKET_FILE.bytes_of(folder / _TICKET) == ticket
    except (FileNotFoundError, NotADirectoryError, InputError):
        return False


@dataclass(frozen=True)
class Leftover:
    """What a rebuild left below the data root.

    Attributes:
        name: of the artifact, with the first digits of its digest.
        is_finished: whether it was kept; else it was stopped, and the same command goes on.
        builder: who is at work on it; None where nobody is.
        last_write: when the folder, or one right below it, last changed.
    """

    folder: Path
    name: str
    is_finished: bool
    builder: Builder | None
    last_write: datetime.datetime
    bytes: int


def leftovers(root: Path) -> list[Leftover]:
    """Every rebuild that was kept or not finished, by name. Only read; one that ends meanwhile is left out."""
    found = []
    for folder in sorted((root / FOLDER).iterdir()) if (root / FOLDER).is_dir() else []:
        if folder.name.startswith(".") or not folder.is_dir():
            continue
        is_finished = not folder.name.endswith(_UNFINISHED)
        name = folder.name.removesuffix(_UNFINISHED)
        with contextlib.suppress(FileNotFoundError):
            builder = None if is_finished else owner_of(folder.with_name(name))
            times = [os.stat(path).st_mtime for path in (folder, *folder.iterdir())]
            last_write = datetime.datetime.fromtimestamp(max(times), datetime.UTC)
            found.append(Leftover(folder, name, is_finished, builder, last_write, folder_bytes(folder)))
    return found
