"""What a snapshot will read: the listing and the draw, from footers alone."""

import fnmatch
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from pipeline_assets.corpus.readers.hub_files import HubFile, HubFiles
from pipeline_assets.corpus.sampling.row_groups import Piece, choose_pieces
from pipeline_assets.corpus.snapshot.footers import FooterReader, Tail
from pipeline_assets.corpus.snapshot.recipe import SnapshotRecipe
from pipeline_assets.corpus.spine.errors import UsageError
from pipeline_assets.corpus.spine.shards import grouped_by_size

logger = logging.getLogger("corpusmill")


@dataclass(frozen=True)
class SnapshotPlan:
    """What will be read.

    Attributes:
        listing: every file that the recipe's patterns match, sorted by path.
        pieces: row groups in manifest order.
        tails: by path, of every file whose footer was read.
    """

    listing: Sequence[HubFile]
    pieces: Sequence[Piece]
    tails: Mapping[str, Tail]

    @property
    def has_language(self) -> bool:
        """Whether every file read has a column `language`."""
        return all("language" in self.tails[piece.group.file.path].columns for piece in self.pieces)

    @property
    def rows(self) -> int:
        return sum(piece.rows for piece in self.pieces)

    @property
    def files(self) -> int:
        """How many files have a piece."""
        return len({piece.group.file.path for piece in self.pieces})

    @property
    def text_bytes(self) -> int:
        """Of the text columns of the row groups, uncompressed, as the footers say."""
        return sum(piece.group.text_bytes for piece in self.pieces)

    def shards(self, shard_text_bytes: int) -> Iterator[tuple[str, list[Piece]]]:
        """Name of each shard and its pieces: consecutive ones, grouped by the text of their row groups."""
        groups = grouped_by_size(self.pieces, lambda piece: piece.group.text_bytes, shard_text_bytes)
        yield from ((f"{number:05d}", group) for number, group in enumerate(groups))

    def dumps(self) -> dict[str, dict[str, int]]:
        """Rows and row groups by dump, the folder that a file lies in: what the sample covers."""
        shares: dict[str, dict[str, int]] = {}
        for piece in self.pieces:
            dump = PurePosixPath(piece.group.file.path).parent.name or "."
            share = shares.setdefault(dump, {"row_groups": 0, "rows": 0})
            share["row_groups"] += 1
            share["rows"] += piece.rows
        return dict(sorted(shares.items()))


def plan_snapshot(hub: HubFiles, recipe: SnapshotRecipe, threads: int, log_every_s: float) -> SnapshotPlan:
    """The listing and the draw; fetches footers, no rows.

    Args:
        threads: footers that are read at a time.
    Raises:
        InputError: from the hub, or a file without a column that the recipe names.
        UsageError: no file matches the recipe's patterns.
    """
    everything = hub.list_files(recipe.dataset, recipe.revision)
    listing = [file for file in everything if any(fnmatch.fnmatchcase(file.path, pattern) for pattern in recipe.files)]
    if not listing:
        shown = ", ".join(file.path for file in everything[:3]) or "no files"
        where = f"{recipe.dataset}@{recipe.revision}"
        raise UsageError(f"no file matches {', '.join(recipe.files)}", where, f"correct `files`; there are {shown}")
    with FooterReader(hub, recipe, threads, log_every_s) as footers:
        pieces = choose_pieces(listing, footers.row_groups, recipe.seed, recipe.amount.limit, footers.soon)
    return SnapshotPlan(listing, pieces, footers.tails)


def hub_inputs(recipe: SnapshotRecipe, plan: SnapshotPlan) -> list[dict[str, Any]]:
    """The listing as manifest inputs; of files that were read, which row groups, where they lie and how many rows."""
    read: dict[str, list[dict[str, int]]] = {}
    for piece in plan.pieces:
        group = piece.group
        entry = {"number": group.number, "first_row": group.first_row, "rows": piece.rows}
        read.setdefault(group.file.path, []).append(entry | {"start": group.start, "stop": group.stop})
    inputs = []
    for file in plan.listing:
        name = f"{recipe.dataset}@{recipe.revision}:{file.path}"
        listed: dict[str, Any] = {"name": name, "digest": file.digest, "bytes": file.size}
        inputs.append(listed | {"row_groups": read[file.path]} if file.path in read else listed)
    return inputs


def log_plan(plan: SnapshotPlan, source: str) -> None:
    """What will be read, and how it lies over the dumps."""
    size = sum(piece.group.stop - piece.group.start for piece in plan.pieces)
    logger.info(
        "plan %s: %d of %d files, %d row groups, %d rows, %.1f MB",
        source,
        plan.files,
        len(plan.listing),
        len(plan.pieces),
        plan.rows,
        size / 1e6,
    )
    for dump, share in plan.dumps().items():
        logger.info(
            "plan %s: %s: %d row groups, %.1f %% of the rows",
            source,
            dump,
            share["row_groups"],
            100 * share["rows"] / max(plan.rows, 1),
        )
