"""Which row groups of a dataset are read: a sample over all files, drawn by hash, from footers alone.

Files are ranked by sha256(seed, path), the row groups of a file by sha256(seed, path, row group). The first pass takes
the best row group of each file in file rank, the second pass the second best, until there is enough. So a small sample
touches as many files, and dumps, as it has row groups, and no footer is fetched that isn't needed.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal, Self

import pydantic

from pipeline_assets.corpus.readers.hub_files import HubFile
from pipeline_assets.corpus.readers.parquet import RowGroup
from pipeline_assets.corpus.spine.files import rank
from pipeline_assets.corpus.spine.recipe import Option, RecipePart

Unit = Literal["files", "documents", "text_bytes"]
_UNITS: tuple[Unit, ...] = ("files", "documents", "text_bytes")


class Amount(RecipePart):
    """How much is read; exactly one key.

    Attributes:
        files: whole files, the first in rank.
        documents: source rows, before any filter; the last row group is cut.
        text_bytes: uncompressed bytes of the text column, as the footers say; the last row group is taken whole.
    """

    files: int | None = pydantic.Field(default=None, gt=0)
    documents: Annotated[
        int | None, Option("Rows to read, drawn over all files.", "max-documents", default=100_000)
    ] = pydantic.Field(default=None, gt=0)
    text_bytes: int | None = pydantic.Field(default=None, gt=0)

    @pydantic.model_validator(mode="after")
    def _has_one_unit(self) -> Self:
        if sum(getattr(self, unit) is not None for unit in _UNITS) != 1:
            raise ValueError(f"give exactly one of {', '.join(_UNITS)}")
        return self

    @property
    def limit(self) -> tuple[Unit, int]:
        """The unit that is counted and how many of it."""
        return next((unit, getattr(self, unit)) for unit in _UNITS if getattr(self, unit) is not None)


@dataclass(frozen=True)
class Piece:
    """A row group, or its first rows where a limit of documents ends inside it."""

    group: RowGroup
    rows: int


def choose_pieces(
    files: Sequence[HubFile],
    row_groups_of: Callable[[HubFile], list[RowGroup]],
    seed: str,
    limit: tuple[Unit, int],
    soon: Callable[[Sequence[HubFile]], None] = lambda files: None,
) -> list[Piece]:
    """The sample, in manifest order; all there is where that is less than the limit.

    Args:
        row_groups_of: reads a file's footer; called once for each file that the sample reaches.
        soon: is told, ahead of that, of files that the sample will reach, unless later row groups are larger by a half
            than those before.
    """
    unit, amount = limit
    ranked = sorted(files, key=lambda file: rank(seed, file.path))
    if unit == "files":
        soon(ranked[:amount])
        return [Piece(group, group.rows) for file in ranked[:amount] for group in row_groups_of(file)]
    pieces: list[Piece] = []
    taken = largest = 0
    groups = _passes(ranked, row_groups_of, seed)
    while taken < amount and (group := next(groups, None)) is not None:
        piece = Piece(group, group.rows)
        if unit == "documents":
            piece = replace(piece, rows=min(group.rows, amount - taken))
        size = piece.rows if unit == "documents" else group.text_bytes
        taken, largest = taken + size, max(largest, size)
        pieces.append(piece)
        if largest:
            soon(ranked[len(pieces) : len(pieces) + (amount - taken) * 2 // (3 * largest)])
    return pieces


def _passes(
    ranked: Sequence[HubFile], row_groups_of: Callable[[HubFile], list[RowGroup]], seed: str
) -> Iterator[RowGroup]:
    ordered: dict[str, list[RowGroup]] = {}
    for number in range(2**31):
        is_over = True
        for file in ranked:
            if file.path not in ordered:
                groups = row_groups_of(file)
                ordered[file.path] = sorted(groups, key=lambda group: rank(seed, group.file.path, group.number))
            if number < len(ordered[file.path]):
                is_over = False
                yield ordered[file.path][number]
        if is_over:
            return
