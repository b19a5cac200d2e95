"""The batches of a score shard that are done, written down while the others are worked on.

What goes on after a machine was taken away loses the batch that it had in hand, and no other.
"""

import json
import os
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from pipeline_assets.corpus.spine import durable


class BatchJournal:
    """A file to which a line is added for each batch, and for each time that somebody begins.

    Each line has the CRC-32 of what it says before it. A line that is torn or damaged ends what the file says: it is
    cut off there, and goes on.

    Attributes:
        begun: how often somebody began since the last batch was done, this time included.
    """

    def __init__(self, path: Path, saved: Callable[[], None]) -> None:
        """
        Args:
            saved: called after each batch, when its line is in the file: what else it takes to keep it.
        """
        self._path, self._saved = path, saved
        self._found: dict[tuple[int, ...], list[float | None]] = {}
        self.begun = 1
        durable.make_folder(path.parent)
        data = path.read_bytes() if path.exists() else b""
        good = 0
        for line in data.splitlines(keepends=True):
            said = _said(line)
            if said is None:
                break
            good += len(line)
            if "rows" in said:
                self._found[tuple(said["rows"])] = said["nll_sums"]
            self.begun = said["begun"] + 1 if "begun" in said else 1
        self._descriptor = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_APPEND
        )  # two may write it, if one was forgotten
        os.ftruncate(self._descriptor, good)
        self._add({"begun": self.begun})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def known(self, rows: Sequence[int]) -> list[float | None] | None:
        """The sums of a batch of these rows, if it was done before."""
        return self._found.get(tuple(rows))

    def add(self, rows: Sequence[int], nll_sums: Sequence[float | None]) -> None:
        """A batch is done."""
        self._add({"rows": list(rows), "nll_sums": list(nll_sums)})

    def count_anew(self) -> None:
        """Forgets how often somebody began."""
        self._add({"begun": 0})

    def _add(self, said: dict[str, Any]) -> None:
        text = json.dumps(said).encode()
        durable.append(self._descriptor, self._path, b"%08x %b\n" % (zlib.crc32(text), text))
        durable.fsync(self._descriptor, self._path)
        self._saved()


def _said(line: bytes) -> dict[str, Any] | None:
    crc, _, text = line.removesuffix(b"\n").partition(b" ")
    is_whole = line.endswith(b"\n") and crc == b"%08x" % zlib.crc32(text)
    return dict(json.loads(text)) if is_whole else None
