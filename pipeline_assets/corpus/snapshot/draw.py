"""Random row groups of a hub dataset's Parquet files, drawn by hash.

Files are ranked by sha256(seed, path), and each file's row groups by sha256(seed, path, row group). In round n, each
file contributes its row group of rank n; files take turns in the order of their ranks. The draw stops when the amount
is reached. If the amount is a number of files, all row groups of the first files are drawn instead.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pipeline_assets.corpus.readers.hub_listing import HubFile
from pipeline_assets.corpus.readers.hub_parquet import RowGroup
from pipeline_assets.corpus.snapshot.recipe import Unit
from pipeline_assets.spine.files import seeded_sort_key


@dataclass(frozen=True)
class Piece:
    """Rows that a snapshot reads from a row group: the first ones, or all."""

    group: RowGroup
    rows: int


def choose_pieces(
    files: Sequence[HubFile],
    read_row_groups: Callable[[Sequence[HubFile]], Iterable[list[RowGroup]]],
    seed: str,
    limit: tuple[Unit, int],
) -> list[Piece]:
    """Draw row groups until a limit is reached, or until none remain.

    `limit` is a unit and an amount; with the unit `files`, whole files are drawn. `read_row_groups` receives files, and
    yields a list of row groups for each file, in order. It may receive several files at a time, to fetch their footers
    in parallel.
    """
    unit, amount = limit
    ranked = sorted(files, key=lambda file: seeded_sort_key(seed, file.path))
    if unit == "files":
        return [Piece(group, group.rows) for groups in read_row_groups(ranked[:amount]) for group in groups]
    ordered: list[list[RowGroup]] = []  # ranked row groups of each file that has been read
    pieces: list[Piece] = []
    total = largest = 0
    for round_number in itertools.count():
        for rank in range(len(ranked)):
            if rank == len(ordered):
                # If every further row group is as large as the largest so far, the amount needs this many files; take
                # two thirds, so that footers are read in vain only if later row groups are half as large again.
                needed_files = (amount - total) * 2 // (3 * largest) if largest else 1
                for groups in read_row_groups(ranked[rank : rank + max(needed_files, 1)]):
                    by_hash = sorted(groups, key=lambda group: seeded_sort_key(seed, group.file.path, group.number))
                    ordered.append(by_hash)
            if round_number < len(ordered[rank]):
                group = ordered[rank][round_number]
                rows = min(group.rows, amount - total) if unit == "documents" else group.rows
                size = rows if unit == "documents" else group.text_bytes
                total, largest = total + size, max(largest, size)
                pieces.append(Piece(group, rows))
                if total >= amount:
                    return pieces
        if all(round_number >= len(groups) for groups in ordered):
            break
    return pieces
