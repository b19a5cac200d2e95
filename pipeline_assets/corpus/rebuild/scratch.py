"""Where a rebuild is made: a folder below the data root that nothing takes for an artifact.

`rebuilds/<name>.unfinished` is built in, and gone on with after a crash if the same program does the same. What is kept
of a finished rebuild is `rebuilds/<name>`. All of it may be deleted at any time.
"""

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline_assets.corpus.spine import durable
from pipeline_assets.corpus.spine.lock import locked

FOLDER = "rebuilds"
_TICKET = "rebuild.json"


@dataclass(frozen=True)
class Scratch:
    """An open scratch folder. `kept` is where it goes if it is to be kept."""

    folder: Path
    kept: Path

    def keep(self) -> None:
        """The folder has its lasting name, in the place of one that was kept before."""
        durable.remove(self.folder / _TICKET)  # from here on a crash makes the next rebuild start clean
        durable.remove(self.kept)
        durable.rename(self.folder, self.kept)

    def remove(self) -> None:
        """The folder is gone."""
        durable.remove(self.folder / _TICKET)
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
    folder = kept.with_name(f"{name}.unfinished")
    data = json.dumps(ticket, sort_keys=True).encode()
    with locked(kept) as lock:
        if not (folder / _TICKET).is_file() or (folder / _TICKET).read_bytes() != data:
            durable.remove(folder / _TICKET)
            durable.remove(folder)
            durable.make_folder(folder)
            durable.write_durably(folder / _TICKET, data)
        yield Scratch(folder, kept)
        durable.remove(lock.path)
