"""Where a pass over a translation set is, and how it is kept, so that one that was cut goes on."""

from collections import Counter

import msgspec
import numpy as np

from pipeline_assets.corpus.parallel_text.pairs import Pair
from pipeline_assets.corpus.parallel_text.reservoir import Reservoir, new_reservoir
from pipeline_assets.corpus.parallel_text.sample_recipe import SampleRecipe
from pipeline_assets.corpus.parallel_text.seen_uids import SeenUids
from pipeline_assets.corpus.spine import durable
from pipeline_assets.corpus.spine.ledger import Ledger, Reject
from pipeline_assets.corpus.spine.staging import WORK, Receipt, StagingDir

_CURSOR, _SEEN = "sample_cursor", "sample_seen"


class Cursor(msgspec.Struct):
    """Where a pass is: the next row of a file, the rows of the files before it, how often it stopped, and
    what became of all rows."""

    reservoir: Reservoir[Pair]
    file: int = 0
    row: int = 0
    rows_before: int = 0
    stops: int = 0
    dropped: dict[str, int] = {}
    rejects: list[Reject] = []

    @property
    def rows(self) -> int:
        return self.rows_before + self.row

    def ledger(self) -> Ledger:
        """Of the rows so far; those that are held come out."""
        rejected = Counter(reject.reason for reject in self.rejects)
        not_drawn = self.rows - len(self.reservoir.items) - sum(self.dropped.values()) - len(self.rejects)
        dropped = self.dropped | ({"not_drawn": not_drawn} if not_drawn else {})
        return Ledger(
            self.rows, len(self.reservoir.items), dict(sorted(dropped.items())), dict(sorted(rejected.items()))
        )


_decode = msgspec.json.Decoder(Cursor).decode


def new_cursor(recipe: SampleRecipe) -> Cursor:
    """Before the first row."""
    return Cursor(new_reservoir(recipe.algorithm, recipe.k, recipe.seed))


def kept_cursor(building: StagingDir, recipe: SampleRecipe, rows: int) -> tuple[Cursor, SeenUids]:
    """The pass as it was last kept; its beginning where it never was, or some of it is lost."""
    is_stream, last = recipe.duplicates == "stream", building.receipt(_CURSOR, "last")
    cursor, seen = new_cursor(recipe), SeenUids(rows if is_stream else 0)
    if last is None:
        return cursor, seen
    kept = _decode(building.path(last.files[0].path).read_bytes())
    parts = [building.receipt(_SEEN, f"{stop:06d}") for stop in range(kept.stops)] if is_stream else []
    if None in parts:
        return cursor, seen
    for part in filter(None, parts):
        for bits in np.fromfile(building.path(part.files[0].path), "<u8").tolist():
            seen.add(bits)
    return kept, seen


def keep_cursor(building: StagingDir, cursor: Cursor, bits: list[int], recipe: SampleRecipe) -> None:
    """From now on a pass that is cut goes on from here.

    Args:
        bits: what the set of uids got since the last time.
    """
    name, before = f"{cursor.stops - 1:06d}", f"{cursor.stops - 2:06d}"
    if recipe.duplicates == "stream":
        file = building.write(f"{WORK}/{_SEEN}/{name}", np.array(bits, "<u8").tobytes())
        building.commit(_SEEN, name, Receipt([file], {}))
    building.commit(
        _CURSOR, "last", Receipt([building.write(f"{WORK}/{_CURSOR}/{name}", msgspec.json.encode(cursor))], {})
    )
    durable.remove(building.path(f"{WORK}/{_CURSOR}/{before}"))
