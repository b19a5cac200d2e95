"""What a snapshot will read: the listing, what is drawn of it, the bytes asked of the hub for it, and their shards."""

import fnmatch
import functools
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import starmap
from pathlib import PurePosixPath
from typing import Any

from pipeline_assets.corpus.readers.columns import check_columns
from pipeline_assets.corpus.readers.hub_files import HubFiles, Span, check_file_hash, in_order
from pipeline_assets.corpus.readers.hub_listing import HubFile, hub_entry
from pipeline_assets.corpus.readers.hub_parquet import RowGroup, read_footer, row_groups
from pipeline_assets.corpus.readers.listing import Listing
from pipeline_assets.corpus.readers.source_formats import detect_format
from pipeline_assets.corpus.snapshot.draw import Piece, choose_pieces
from pipeline_assets.corpus.snapshot.line_prefixes import block_ranges, read_prefixes
from pipeline_assets.corpus.snapshot.recipe import SnapshotRecipe
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.progress import Progress
from pipeline_assets.spine.stage import grouped_by_size

logger = logging.getLogger("corpusmill")


@dataclass(frozen=True)
class Tail:
    """The end of a file, which came with its footer. The footer itself is not kept: one of a thousand row groups takes
    10 MB of memory, and a sample over all dumps reads hundreds.

    Attributes:
        spans: up to the file's end, in order; none of a file of lines, which has no footer.
        row_groups: how many the file has; of lines one is read, and where that isn't the whole file, another isn't.
        columns: their names.
    """

    spans: tuple[Span, ...]
    row_groups: int
    columns: tuple[str, ...]


def _read_footer(hub: HubFiles, recipe: SnapshotRecipe, file: HubFile) -> tuple[Tail, list[RowGroup]]:
    where = recipe.where(file.path)
    footer = read_footer(hub, recipe.dataset, recipe.revision, file)
    schema = footer.metadata.schema.to_arrow_schema()
    check_columns(schema, [("id", recipe.columns.id), ("created_at", recipe.columns.created_at)], where)
    for column, fix in recipe.rule_columns().items():
        if column not in schema.names:
            raise UsageError(f"there is no column `{column}`; it has {', '.join(schema.names)}", where, fix)
    groups = row_groups(footer, file, recipe.columns.text, where)
    return Tail(footer.spans, footer.metadata.num_row_groups, tuple(schema.names)), groups


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

    def dumps(self) -> dict[str, dict[str, int]]:
        """Rows and row groups by dump, the folder that a file lies in: what the sample covers."""
        shares: dict[str, dict[str, int]] = {}
        for piece in self.pieces:
            dump = PurePosixPath(piece.group.file.path).parent.name or "."
            share = shares.setdefault(dump, {"row_groups": 0, "rows": 0})
            share["row_groups"] += 1
            share["rows"] += piece.rows
        return dict(sorted(shares.items()))


def plan_snapshot(
    hub: HubFiles,
    recipe: SnapshotRecipe,
    threads: int,
    log_every_s: float,
    pinned: Sequence[Mapping[str, Any]] = (),
) -> SnapshotPlan:
    """The listing and the draw. Of Parquet it fetches footers and no rows; of JSON lines, which have none, the rows.

    Args:
        threads: files that are read at a time.
        pinned: the inputs of a raw pin of this recipe: of lines they say what was drawn, and nothing is counted again.
    Raises:
        InputError: from the hub, or a file without a column that the recipe names.
        UsageError: no file matches the recipe's patterns.
    """
    listing = list_rows(hub, recipe)
    if is_lines(listing[0]):
        drawn = read_prefixes(hub, recipe, listing, threads, log_every_s, pinned)
        groups = [drawn[file.path].row_group(file) for file in listing if file.path in drawn]
        tails = {path: Tail((), 2 - prefix.is_whole, prefix.columns) for path, prefix in drawn.items()}
        return SnapshotPlan(listing, [Piece(group, group.rows) for group in groups], tails)
    tails = {}

    def file_row_groups(files: Sequence[HubFile]) -> Iterator[list[RowGroup]]:
        progress = Progress(f"footers {recipe.source}", len(files), "files", log_every_s, quiet_s=1.0)
        for file, footer in zip(files, in_order(read, files, threads), strict=True):
            tails[file.path], groups = footer
            progress.add(1)
            yield groups

    read = functools.partial(_read_footer, hub, recipe)
    return SnapshotPlan(listing, choose_pieces(listing, file_row_groups, recipe.seed, recipe.amount.limit), tails)


def list_rows(hub: HubFiles, recipe: SnapshotRecipe) -> list[HubFile]:
    """The files that the recipe's patterns match, sorted by path: all are JSON lines, or none is.

    Raises:
        UsageError: there is none, or some are JSON lines and others are not.
    """
    everything = hub.list_files(recipe.dataset, recipe.revision)
    listing = [file for file in everything if any(fnmatch.fnmatchcase(file.path, pattern) for pattern in recipe.files)]
    where = f"{recipe.dataset}@{recipe.revision}"
    if not listing:
        shown = ", ".join(file.path for file in everything[:3]) or "no files"
        raise UsageError(f"no file matches {', '.join(recipe.files)}", where, f"correct `files`; there are {shown}")
    other = next((file for file in listing if is_lines(file) != is_lines(listing[0])), None)
    if other is not None:
        what = f"some files that match are JSON lines, others are not: {listing[0].path}, {other.path}"
        raise UsageError(what, where, "narrow `files` to one format")
    return listing


def is_lines(file: HubFile) -> bool:
    """Whether the file is one of JSON lines, by its name."""
    return detect_format(file.path) == "lines"


def hub_inputs(recipe: SnapshotRecipe, plan: SnapshotPlan) -> list[dict[str, Any]]:
    """The listing as manifest inputs; of files that were read, which row groups, where they lie and how many rows."""
    read: dict[str, list[dict[str, int]]] = {}
    for piece in plan.pieces:
        group = piece.group
        entry = {"number": group.number, "first_row": group.first_row, "rows": piece.rows}
        read.setdefault(group.file.path, []).append(entry | {"start": group.start, "stop": group.stop})
    listed = ((file.path, hub_entry(recipe.dataset, recipe.revision, file)) for file in plan.listing)
    return [entry | {"row_groups": read[path]} if path in read else entry for path, entry in listed]


@dataclass(frozen=True)
class FileRequest:
    """What is asked of the hub for one file, beyond the tail that came with its footer.

    Attributes:
        pieces: of the file, in the plan's order.
        ranges: bytes [start, stop), one for each piece; empty for a piece that came with the tail. Of lines, the blocks
            of the one piece.
        is_whole: every row group is wanted: one range from 0 to the tail, so that the file can be hashed.
    """

    file: HubFile
    pieces: tuple[Piece, ...]
    ranges: tuple[tuple[int, int], ...]
    is_whole: bool


@dataclass(frozen=True)
class LocalPiece:
    """A piece whose bytes are here: the spans of its footer and of its row group."""

    piece: Piece
    spans: tuple[Span, ...]


@dataclass(frozen=True)
class SnapshotShard:
    """Pieces that become one Document shard. `rows` counts source rows."""

    name: str
    pieces: tuple[LocalPiece, ...]

    @property
    def rows(self) -> int:
        return sum(local.piece.rows for local in self.pieces)

    @property
    def text_bytes(self) -> int:
        """As the footers say."""
        return sum(local.piece.group.text_bytes for local in self.pieces)


def file_requests(plan: SnapshotPlan) -> list[FileRequest]:
    """One a file that has a piece, in the plan's order."""
    wanted: dict[HubFile, list[Piece]] = {}
    for piece in plan.pieces:
        wanted.setdefault(piece.group.file, []).append(piece)
    return [_request(file, tuple(pieces), plan.tails[file.path]) for file, pieces in wanted.items()]


def _request(file: HubFile, pieces: tuple[Piece, ...], tail: Tail) -> FileRequest:
    if is_lines(file):
        return FileRequest(file, pieces, tuple(block_ranges(file.size, pieces[0].group.stop)), is_whole=False)
    here = tail.spans[0].start  # and all behind it
    if len(pieces) == tail.row_groups and here > 0:
        return FileRequest(file, pieces, ((0, here),), is_whole=True)
    ranges = tuple((piece.group.start, min(piece.group.stop, here)) for piece in pieces)
    return FileRequest(file, pieces, ranges, is_whole=False)


def bytes_to_fetch(hub: HubFiles, recipe: SnapshotRecipe, plan: SnapshotPlan) -> int:
    """What `fetch_pieces` would ask of the hub: the ranges, less what the cache has of them."""
    return sum(_bytes_missing(hub, recipe, request) for request in file_requests(plan))


def _bytes_missing(hub: HubFiles, recipe: SnapshotRecipe, request: FileRequest) -> int:
    asked = (bounds for bounds in request.ranges if bounds[0] < bounds[1])
    return sum(hub.count_missing_bytes(recipe.dataset, request.file, *bounds) for bounds in asked)


def fetch_pieces(
    hub: HubFiles, recipe: SnapshotRecipe, plan: SnapshotPlan, threads: int, log_every_s: float
) -> list[LocalPiece]:
    """Every piece with its bytes in the cache, in the plan's order; files of which every row group is wanted are
    hashed.
    """
    progress = Progress(f"fetch {recipe.source}", len(plan.pieces), "row groups", log_every_s)

    def fetch(request: FileRequest) -> tuple[list[LocalPiece], int]:
        missing = _bytes_missing(hub, recipe, request)
        return _fetched(hub, recipe, request, plan.tails[request.file.path].spans), missing

    local: dict[Piece, LocalPiece] = {}
    for fetched, missing in in_order(fetch, file_requests(plan), threads):
        local |= {item.piece: item for item in fetched}
        if missing:
            progress.add(len(fetched), {"bytes": missing})
        else:
            progress.add_finished(len(fetched))
    return [local[piece] for piece in plan.pieces]


def _fetched(hub: HubFiles, recipe: SnapshotRecipe, request: FileRequest, tail: tuple[Span, ...]) -> list[LocalPiece]:
    """The request's pieces with their bytes, those of `tail` among them."""
    fetch = functools.partial(hub.fetch, recipe.dataset, recipe.revision, request.file)
    if request.is_whole or is_lines(request.file):
        spans = (*starmap(fetch, request.ranges), *tail)
        if request.is_whole:
            check_file_hash(request.file, spans, recipe.where(request.file.path))
        return [LocalPiece(piece, spans) for piece in request.pieces]
    return [
        LocalPiece(piece, (fetch(start, stop), *tail) if start < stop else tail)
        for piece, (start, stop) in zip(request.pieces, request.ranges, strict=True)
    ]


def plan_shards(pieces: Sequence[LocalPiece], shard_text_bytes: int) -> list[SnapshotShard]:
    """Consecutive pieces as shards, each closed by the row group that brings its text to this size."""
    groups = grouped_by_size(pieces, lambda local: local.piece.group.text_bytes, shard_text_bytes)
    return [SnapshotShard(f"{number:05d}", tuple(group)) for number, group in enumerate(groups)]


def raw_of_hub(hub: HubFiles, recipe: SnapshotRecipe, threads: int, log_every_s: float) -> BuildResult:
    """The raw pin of a sample: the listing at the commit, and what is drawn of it, fetched into the cache."""
    plan, _, fetched = fetch_snapshot(hub, recipe, threads, log_every_s)
    counts = {"files": plan.files, "row_groups": len(plan.pieces), "rows": plan.rows}
    return BuildResult(
        [], counts, {"dumps": plan.dumps()}, external_inputs=hub_inputs(recipe, plan), provenance=fetched
    )


def list_snapshot(hub: HubFiles, recipe: SnapshotRecipe, threads: int, log_every_s: float) -> Listing:
    """What a snapshot will read, by the listing and footers; of JSON lines, which have none, the most that it may."""
    listing = list_rows(hub, recipe)
    source = f"{recipe.source}: {recipe.dataset}@{recipe.revision}"
    if is_lines(listing[0]):
        blocks = ((file, block) for file in listing for block in block_ranges(file.size))
        missing = sum(hub.count_missing_bytes(recipe.dataset, file, *block) for file, block in blocks)
        return Listing(tuple(hub_entry(recipe.dataset, recipe.revision, file) for file in listing), {source: missing})
    plan = plan_snapshot(hub, recipe, threads, log_every_s)
    return Listing(tuple(hub_inputs(recipe, plan)), {source: bytes_to_fetch(hub, recipe, plan)})


def fetch_snapshot(
    hub: HubFiles, recipe: SnapshotRecipe, threads: int, log_every_s: float
) -> tuple[SnapshotPlan, list[LocalPiece], dict[str, Any]]:
    """The plan, its pieces in the cache, and what provenance tells of that: what was fetched, and was to be."""
    began, bytes_before = time.monotonic(), hub.traffic.bytes
    plan = plan_snapshot(hub, recipe, threads, log_every_s)
    _log_plan(plan, recipe.source)
    missing = bytes_to_fetch(hub, recipe, plan)
    planned, bytes_planned = time.monotonic(), hub.traffic.bytes
    pieces = fetch_pieces(hub, recipe, plan, threads, log_every_s)
    told = {
        "planned": {"bytes_fetched": {"value": missing, "basis": "less what the cache has"}},
        "bytes_fetched": hub.traffic.bytes - bytes_planned,
        "bytes_fetched_to_plan": bytes_planned - bytes_before,
        "seconds_of": {"plan": round(planned - began, 3), "fetch": round(time.monotonic() - planned, 3)},
    }
    return plan, pieces, told


def _log_plan(plan: SnapshotPlan, source: str) -> None:
    """What will be read, and how it lies over the dumps."""
    files, groups, rows = f"{plan.files} of {len(plan.listing)} files", len(plan.pieces), plan.rows
    size = sum(piece.group.stop - piece.group.start for piece in plan.pieces) / 1e6
    logger.info("plan %s: %s, %d row groups, %d rows, %.1f MB", source, files, groups, rows, size)
    for dump, of_dump in plan.dumps().items():
        share = 100 * of_dump["rows"] / max(rows, 1)
        logger.info("plan %s: %s: %d row groups, %.1f %% of the rows", source, dump, of_dump["row_groups"], share)
