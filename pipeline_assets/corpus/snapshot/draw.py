"""Row groups of a hub dataset's Parquet, drawn by hash.

Files are ranked by sha256(seed, path), the row groups of a file by sha256(seed, path, row group). The first pass takes
the best row group of each file in file rank, the second pass the second best, until there is enough. So a small sample
touches as many files, and dumps, as it has row groups, and no footer is fetched that isn't needed.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pipeline_assets.corpus.readers.hub_listing import HubFile
from pipeline_assets.corpus.readers.hub_parquet import RowGroup
from pipeline_assets.corpus.snapshot.recipe import Unit
from pipeline_assets.spine.files import seeded_rank


@dataclass(frozen=True)
class Piece:
    """A row group, or its first rows where a limit of documents ends inside it."""

    group: RowGroup
    rows: int


def choose_pieces(
    files: Sequence[HubFile],
    row_groups_of: Callable[[Sequence[HubFile]], Iterable[list[RowGroup]]],
    seed: str,
    limit: tuple[Unit, int],
) -> list[Piece]:
    """The sample, in manifest order; all there is where that is less than the limit.

    Args:
        row_groups_of: reads the footers of some files, in their order; asked once for each file that the sample
            reaches, and for no other, unless later row groups are larger by a half than those before.
    """
    unit, amount = limit
    ranked = sorted(files, key=lambda file: seeded_rank(seed, file.path))
    if unit == "files":
        return [Piece(group, group.rows) for groups in row_groups_of(ranked[:amount]) for group in groups]
    ordered: list[list[RowGroup]] = []  # of the first files in rank
    pieces: list[Piece] = []
    taken = largest = 0
    for turn in itertools.count():
        for place in range(len(ranked)):
            if place == len(ordered):
                surely = (amount - taken) * 2 // (3 * largest) if largest else 1
                for groups in row_groups_of(ranked[place : place + max(surely, 1)]):
                    ordered.append(sorted(groups, key=lambda group: seeded_rank(seed, group.file.path, group.number)))
            if turn < len(ordered[place]):
                group = ordered[place][turn]
                rows = min(group.rows, amount - taken) if unit == "documents" else group.rows
                size = rows if unit == "documents" else group.text_bytes
                taken, largest = taken + size, max(largest, size)
                pieces.append(Piece(group, rows))
                if taken >= amount:
                    return pieces
        if all(turn >= len(groups) for groups in ordered):
            break
    return pieces
