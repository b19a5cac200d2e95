"""Plan of the row groups that a snapshot reads from a hub dataset."""

import fnmatch
import functools
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from pipeline_assets.corpus.readers.column_recipe import column_fix
from pipeline_assets.corpus.readers.columns import check_columns
from pipeline_assets.corpus.readers.hub_cache import Span
from pipeline_assets.corpus.readers.hub_files import HubFiles, map_in_order
from pipeline_assets.corpus.readers.hub_listing import HubFile, hub_input
from pipeline_assets.corpus.readers.hub_parquet import RowGroup, list_row_groups, read_footer
from pipeline_assets.corpus.readers.source_formats import detect_format
from pipeline_assets.corpus.snapshot.draw import Piece, choose_pieces
from pipeline_assets.corpus.snapshot.line_prefixes import read_prefixes
from pipeline_assets.corpus.snapshot.recipe import SnapshotRecipe
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.progress import Progress


@dataclass(frozen=True)
class Tail:
    """End of a Parquet file, including the footer; for JSON lines, `spans` is empty.

    The parsed footer is not stored: 1,000 row groups need 10 MB, and some samples read hundreds of footers.
    """

    spans: tuple[Span, ...]  # up to the end of the file, in order; empty for JSON lines, which have no footer
    row_groups: int  # in the file; JSON lines have one that is read, and another one if the file continues after it
    columns: tuple[str, ...]


def _read_footer(hub: HubFiles, recipe: SnapshotRecipe, file: HubFile) -> tuple[Tail, list[RowGroup]]:
    """Read a file's footer, check the recipe's columns, and list the row groups."""
    where = recipe.input_name(file.path)
    metadata, spans = read_footer(hub, recipe.dataset, recipe.revision, file)
    schema = metadata.schema.to_arrow_schema()
    check_columns(schema, recipe.columns, where)
    for column, fix in recipe.rule_columns().items():
        if column not in schema.names:
            raise UsageError(f"column `{column}` not found; the columns are {', '.join(schema.names)}", where, fix)
    groups = list_row_groups(metadata, file, recipe.columns.text)
    if any(group.rows and not group.text_bytes for group in groups):
        what = f"column `{recipe.columns.text}` has lists or objects, expected text"  # footers state no size for those
        raise UsageError(what, where, column_fix("text"))
    return Tail(spans, len(groups), tuple(schema.names)), groups


@dataclass(frozen=True)
class SnapshotPlan:
    """Files that match a recipe, and the row groups to read from them."""

    listing: Sequence[HubFile]  # every file that matches the recipe's patterns, sorted by path
    pieces: Sequence[Piece]  # in the order in which they are converted
    tails: Mapping[str, Tail]  # of the files whose footers were read, by path

    @property
    def has_language_column(self) -> bool:
        """True if every file with a piece has a column `language`."""
        return all("language" in self.tails[piece.group.file.path].columns for piece in self.pieces)

    @property
    def rows(self) -> int:
        return sum(piece.rows for piece in self.pieces)

    @property
    def file_count(self) -> int:
        """Number of files from which a piece is read."""
        return len({piece.group.file.path for piece in self.pieces})

    def count_by_dump(self) -> dict[str, dict[str, int]]:
        """Count rows and row groups by crawl dump, which is the name of a file's folder."""
        shares = defaultdict[str, Counter[str]](Counter)
        for piece in self.pieces:
            shares[PurePosixPath(piece.group.file.path).parent.name or "."].update(row_groups=1, rows=piece.rows)
        return {dump: dict(share) for dump, share in sorted(shares.items())}


def plan_snapshot(
    hub: HubFiles, recipe: SnapshotRecipe, settings: RunSettings, pinned: Sequence[Mapping[str, Any]] = ()
) -> SnapshotPlan:
    """List the files of a snapshot, and draw the row groups of its sample.

    For Parquet, only footers are fetched. For JSON lines, rows are fetched and counted. If `pinned` has the inputs of a
    raw pin of this recipe, the pin's row counts are used instead, and at most 100 rows per file are fetched. Raise
    UsageError if no file matches, formats differ, or a column is missing.
    """
    listing = list_data_files(hub, recipe)
    if is_json_lines(listing[0]):
        drawn = read_prefixes(hub, recipe, listing, settings, pinned)
        groups = [drawn[file.path].row_group(file) for file in listing if file.path in drawn]
        tails = {path: Tail((), 2 - prefix.is_whole, prefix.columns) for path, prefix in drawn.items()}
        return SnapshotPlan(listing, [Piece(group, group.rows) for group in groups], tails)
    tails = {}

    def file_row_groups(files: Sequence[HubFile]) -> Iterator[list[RowGroup]]:
        progress = Progress(f"footers {recipe.source}", len(files), "files", settings.log_every_s, initial_quiet_s=1.0)
        for file, footer in zip(files, map_in_order(read, files, settings.fetch_threads), strict=True):
            tails[file.path], groups = footer
            progress.add(1)
            yield groups

    read = functools.partial(_read_footer, hub, recipe)
    return SnapshotPlan(listing, choose_pieces(listing, file_row_groups, recipe.seed, recipe.amount.limit), tails)


def list_data_files(hub: HubFiles, recipe: SnapshotRecipe) -> list[HubFile]:
    """List files that match the recipe; UsageError if none match or formats differ."""
    available = hub.list_files(recipe.dataset, recipe.revision)
    listing = [file for file in available if any(fnmatch.fnmatchcase(file.path, pattern) for pattern in recipe.files)]
    where = f"{recipe.dataset}@{recipe.revision}"
    if not listing:
        preview = ", ".join(file.path for file in available[:3]) or "no files"
        fix = f"correct `files`; the dataset contains {preview}"
        raise UsageError(f"no file matches {', '.join(recipe.files)}", where, fix)
    if other_format := next((file for file in listing if is_json_lines(file) != is_json_lines(listing[0])), None):
        what = f"matching files must have one format, got JSON lines and others: {listing[0].path}, {other_format.path}"
        raise UsageError(what, where, "narrow `files` to one format")
    return listing


def is_json_lines(file: HubFile) -> bool:
    """Check by a file's name whether the file contains JSON lines."""
    return detect_format(file.path) == "lines"


def hub_inputs(recipe: SnapshotRecipe, plan: SnapshotPlan) -> list[dict[str, Any]]:
    """Return a manifest's input entries for the plan's files, with row groups to read."""
    read: dict[str, list[dict[str, int]]] = {}
    for piece in plan.pieces:
        group = piece.group
        entry = {"number": group.number, "first_row": group.first_row, "rows": piece.rows}
        read.setdefault(group.file.path, []).append(entry | {"start": group.start, "stop": group.stop})
    listed = ((file.path, hub_input(recipe.dataset, recipe.revision, file)) for file in plan.listing)
    return [entry | {"row_groups": read[path]} if path in read else entry for path, entry in listed]
