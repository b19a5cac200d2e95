"""Files of a packing plan: draws, rows and their segments.

Documents of a corpus are numbered in the order of source name, shard and row; draws in the order of source, epoch and
document. So the draws of one shard in one epoch have consecutive numbers.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.formats.checked_file import map_values
from pipeline_assets.corpus.packing.encoded_corpus import EncodedShard
from pipeline_assets.spine.staging import WORK_FOLDER, Receipt, StagingView


@dataclass(frozen=True)
class DrawnSource:
    """Draws of one source: `epochs` whole epochs, and a part of the next epoch.

    Attributes:
        first_document: Number of the source's first document in the corpus.
        stop_document: `first_document` plus the number of documents of the source.
        first_draw: Number of the source's first draw.
        first_taken: Index in `NumberedDraws.taken` of the partial epoch's first document.
        stop_taken: Index in `NumberedDraws.taken` after the partial epoch's last document.
    """

    name: str
    first_document: int
    stop_document: int
    first_draw: int
    epochs: int
    first_taken: int
    stop_taken: int

    @property
    def document_count(self) -> int:
        return self.stop_document - self.first_document

    @property
    def draw_count(self) -> int:
        return self.epochs * self.document_count + self.stop_taken - self.first_taken


@dataclass(frozen=True)
class NumberedDraws:
    """All draws of a packed set, numbered by source, epoch and document.

    Attributes:
        taken: Documents that each source draws in its partial epoch, source after source. Documents are numbered from 0
            in each source; the numbers of a source ascend.
        cut: (draw number, tokens) of the cut draw; None if no draw is cut.
    """

    sources: Sequence[DrawnSource]
    taken: NDArray[np.uint32]
    cut: tuple[int, int] | None

    @property
    def draw_count(self) -> int:
        return sum(source.draw_count for source in self.sources)


PLAN_FOLDER, DRAWS_NOTE, RECIPE_NOTE = f"{WORK_FOLDER}/plan", "drawn", "settled"


@dataclass(frozen=True)
class PlanFiles:
    """Paths of a plan's files; each file has raw values and checksums.

    Attributes:
        row_starts: First segment of each row, then the number of segments; int64, shape (rows + 1,).
        documents: Document of each segment, numbered in the corpus; uint32, shape (segments,).
        starts: First token of each segment in its document; int32, shape (segments,).
        lengths: Number of tokens of each segment; int32, shape (segments,).
        first_rows: Row in which each draw begins; uint32, shape (draws,).
        is_whole: Whether one row has the whole document of a draw; bool, shape (draws,).
        taken: Array `NumberedDraws.taken`; uint32.
    """

    row_starts: Path
    documents: Path
    starts: Path
    lengths: Path
    first_rows: Path
    is_whole: Path
    taken: Path

    @classmethod
    def from_folder(cls, folder: StagingView) -> "PlanFiles":
        """Return the paths of a plan in a staging directory."""
        return cls(*(folder.path(f"{PLAN_FOLDER}/{field.name}") for field in fields(cls)))


def read_draws(receipt: Receipt, files: PlanFiles) -> NumberedDraws:
    """Read the draws from the receipt and the files of a plan."""
    notes = receipt.notes[DRAWS_NOTE]
    sources = [DrawnSource(**source) for source in notes["sources"]]
    return NumberedDraws(sources, map_values(files.taken, np.uint32), tuple(notes["cut"]) if notes["cut"] else None)


_RANGE_TOKENS = 8 << 20
_SEGMENT_COST = 32  # memory of a segment while its line is written, in tokens


@dataclass(frozen=True)
class RowRange:
    """Rows [start, stop) of a packed set, which one task of a stage writes."""

    name: str
    start: int
    stop: int
    encoded_shards: tuple[EncodedShard, ...]
    plan: PlanFiles
    rows: int = 0  # so that the engine does not search the range for poison rows


def row_ranges(encoded_shards: tuple[EncodedShard, ...], plan: PlanFiles, seq_len: int) -> list[RowRange]:
    """Divide rows into ranges of about 8 Mi tokens, or fewer if segments are short."""
    row_starts = map_values(plan.row_starts, np.int64)
    # Memory of all rows before each row, in tokens: `seq_len` for each row, and a constant for each segment. A range
    # ends where this sum reaches a multiple of the limit.
    cost = np.arange(len(row_starts)) * seq_len + row_starts * _SEGMENT_COST
    limits = np.arange(_RANGE_TOKENS, cost[-1], _RANGE_TOKENS)
    bounds = np.unique([0, *np.searchsorted(cost, limits), len(cost) - 1]).tolist()
    return [RowRange(f"{start:010d}", start, stop, encoded_shards, plan) for start, stop in itertools.pairwise(bounds)]
