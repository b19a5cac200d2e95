"""The files of a plan: what is drawn, and which rows it makes, before a row is written."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.packing.drawn import Drawn, DrawnSource
from pipeline_assets.corpus.packing.encoded_shard import EncodedShard
from pipeline_assets.corpus.spine.building import BuildFolder, Receipt
from pipeline_assets.corpus.spine.sealing import WORK

PLAN, DRAWN = f"{WORK}/plan", "drawn"


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
