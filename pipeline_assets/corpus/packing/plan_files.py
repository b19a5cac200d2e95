"""What there is before a row is written: the encoded shards, and the files of a plan, what is drawn and which rows it
makes.

Documents of a corpus are numbered: sources by name, their shards, their rows. So are draws: sources, their epochs, and
in an epoch the documents. So of a shard the draws of one epoch have numbers in a row.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.packing.encoded import EncodedShard
from pipeline_assets.corpus.spine.staging import WORK, BuildFolder, Receipt


def first_documents(shards: Sequence[EncodedShard]) -> NDArray[np.int64]:
    """The number of each shard's first document, and how many there are, shape (shards + 1,)."""
    return np.cumsum([0, *(shard.documents for shard in shards)], dtype=np.int64)


@dataclass(frozen=True)
class DrawnSource:
    """What was drawn of one source.

    Attributes:
        first_document, stop_document: numbers of its documents in the corpus.
        first_draw: the number of its first draw.
        epochs: how often all of it was drawn.
        first_taken, stop_taken: where `Drawn.taken` has the documents of its last epoch.
    """

    name: str
    first_document: int
    stop_document: int
    first_draw: int
    epochs: int
    first_taken: int
    stop_taken: int

    @property
    def documents(self) -> int:
        return self.stop_document - self.first_document

    @property
    def draws(self) -> int:
        return self.epochs * self.documents + self.stop_taken - self.first_taken


@dataclass(frozen=True)
class Drawn:
    """All draws.

    Attributes:
        taken: of each source the documents of its last epoch, ascending, numbered in the source; shape (taken,).
        cut: the draw whose document is cut, and the tokens that are left of it; None where none is.
    """

    sources: Sequence[DrawnSource]
    taken: NDArray[np.uint32]
    cut: tuple[int, int] | None

    @property
    def draws(self) -> int:
        return sum(source.draws for source in self.sources)


PLAN, DRAWN, SETTLED = f"{WORK}/plan", "drawn", "settled"


@dataclass(frozen=True)
class PlannedCorpus:
    """All encoded shards, in order: planned in one piece."""

    encoded: tuple[EncodedShard, ...]
    name: str = "plan"
    rows: int = 0


@dataclass(frozen=True)
class PlanFiles:
    """What a plan says, as raw files.

    Attributes:
        row_starts: the first segment of each row, and how many there are, int64 (rows + 1,).
        documents: of each segment, numbered in the corpus, uint32 (segments,).
        starts: of each segment its first token in the document, int32 (segments,).
        lengths: of each segment, int32 (segments,).
        first_rows: of each draw, by number, the row that it begins in, uint32 (draws,).
        is_whole: of each draw whether one row holds all of it, bool (draws,).
        taken: see `Drawn.taken`.
    """

    row_starts: Path
    documents: Path
    starts: Path
    lengths: Path
    first_rows: Path
    is_whole: Path
    taken: Path

    @classmethod
    def below(cls, folder: BuildFolder) -> "PlanFiles":
        """Of a build."""
        return cls(*(folder.path(f"{PLAN}/{field.name}") for field in fields(cls)))


def drawn_of(receipt: Receipt, files: PlanFiles) -> Drawn:
    """The draws of a plan."""
    notes = receipt.notes[DRAWN]
    sources = [DrawnSource(**source) for source in notes["sources"]]
    return Drawn(sources, mapped(files.taken, np.uint32), tuple(notes["cut"]) if notes["cut"] else None)


def mapped(path: Path, dtype: type[np.generic]) -> NDArray[Any]:
    """A raw file as an array; what isn't looked at isn't read."""
    return np.memmap(path, dtype, "r") if path.stat().st_size else np.empty(0, dtype)


_RANGE_TOKENS = 8 << 20
_SEGMENT_TOKENS = 32  # what a segment costs, in tokens: of memory while its line is made


@dataclass(frozen=True)
class RowRange:
    """The rows from `start` to before `stop`."""

    name: str
    start: int
    stop: int
    encoded: tuple[EncodedShard, ...]
    plan: PlanFiles
    rows: int = 0


def row_ranges(encoded: tuple[EncodedShard, ...], plan: PlanFiles, seq_len: int) -> list[RowRange]:
    """All rows in ranges of about 8 Mi tokens, fewer where documents are short; planned from the rows alone."""
    row_starts = mapped(plan.row_starts, np.int64)
    cost = np.arange(len(row_starts)) * seq_len + row_starts * _SEGMENT_TOKENS
    steps = np.arange(_RANGE_TOKENS, cost[-1], _RANGE_TOKENS)
    bounds = np.unique([0, *np.searchsorted(cost, steps), len(cost) - 1]).tolist()
    return [RowRange(f"{start:010d}", start, stop, encoded, plan) for start, stop in itertools.pairwise(bounds)]
