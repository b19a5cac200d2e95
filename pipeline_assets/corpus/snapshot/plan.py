"""Plan of a snapshot: listing, drawn row groups, bytes to fetch and shards."""

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
from pipeline_assets.corpus.readers.hub_files import HubFiles, Span, check_file_hash, map_in_order
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
    """End of a file, which was fetched with its footer.

    The footer itself is not kept: a footer with a thousand row groups needs 10 MB of memory, and a sample over all
    dumps reads hundreds of footers.

    Attributes:
        spans: Spans up to the end of the file, in order; empty for JSON lines, which have no footer.
        row_groups: Number of row groups in the file. JSON lines have one that is read, and another one if the file
            continues after it.
        columns: Column names.

    """

    spans: tuple[Span, ...]
    row_groups: int
    columns: tuple[str, ...]


def _read_footer(hub: HubFiles, recipe: SnapshotRecipe, file: HubFile) -> tuple[Tail, list[RowGroup]]:
    """Read a footer, check its columns, and list the row groups."""
    where = recipe.where(file.path)
    footer = read_footer(hub, recipe.dataset, recipe.revision, file)
    schema = footer.metadata.schema.to_arrow_schema()
    check_columns(schema, [("id", recipe.columns.id), ("created_at", recipe.columns.created_at)], where)
    for column, fix in recipe.rule_columns().items():
        if column not in schema.names:
            raise UsageError(f"column `{column}` not found; the columns are {', '.join(schema.names)}", where, fix)
    groups = row_groups(footer, file, recipe.columns.text, where)
    return Tail(footer.spans, footer.metadata.num_row_groups, tuple(schema.names)), groups


@dataclass(frozen=True)
class SnapshotPlan:
    """Plan of the rows to read.

    Attributes:
        listing: Every file that matches the recipe's patterns, sorted by path.
        pieces: Row groups in the order in which they are converted.
        tails: Ends of the files whose footers were read, by path.

    """

    listing: Sequence[HubFile]
    pieces: Sequence[Piece]
    tails: Mapping[str, Tail]

    @property
    def has_language(self) -> bool:
        """True if every file that is read has a column `language`."""
        return all("language" in self.tails[piece.group.file.path].columns for piece in self.pieces)

    @property
    def rows(self) -> int:
        return sum(piece.rows for piece in self.pieces)

    @property
    def files(self) -> int:
        """Number of files with a piece."""
        return len({piece.group.file.path for piece in self.pieces})

    def dumps(self) -> dict[str, dict[str, int]]:
        """Count rows and row groups by dump, which is the folder of a file."""
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
    """List the files and draw the sample.

    For Parquet, this fetches the footers but no rows. For JSON lines, which have no footers, it fetches the rows,
    unless `pinned` has the inputs of a raw pin of this recipe, which contain the drawn rows.

    Raises:
        InputError: The hub fails, or a file lacks a column that the recipe names.
        UsageError: No file matches the recipe's patterns.
    """
    listing = list_data_files(hub, recipe)
    if is_lines(listing[0]):
        drawn = read_prefixes(hub, recipe, listing, threads, log_every_s, pinned)
        groups = [drawn[file.path].row_group(file) for file in listing if file.path in drawn]
        tails = {path: Tail((), 2 - prefix.is_whole, prefix.columns) for path, prefix in drawn.items()}
        return SnapshotPlan(listing, [Piece(group, group.rows) for group in groups], tails)
    tails = {}

    def file_row_groups(files: Sequence[HubFile]) -> Iterator[list[RowGroup]]:
        progress = Progress(f"footers {recipe.source}", len(files), "files", log_every_s, quiet_s=1.0)
        for file, footer in zip(files, map_in_order(read, files, threads), strict=True):
            tails[file.path], groups = footer
            progress.add(1)
            yield groups

    read = functools.partial(_read_footer, hub, recipe)
    return SnapshotPlan(listing, choose_pieces(listing, file_row_groups, recipe.seed, recipe.amount.limit), tails)


def list_data_files(hub: HubFiles, recipe: SnapshotRecipe) -> list[HubFile]:
    """List the files that match the recipe's patterns, sorted by path.

    Raises:
        UsageError: No file matches, or some files are JSON lines and others are not.

    """
    available = hub.list_files(recipe.dataset, recipe.revision)
    listing = [file for file in available if any(fnmatch.fnmatchcase(file.path, pattern) for pattern in recipe.files)]
    where = f"{recipe.dataset}@{recipe.revision}"
    if not listing:
        preview = ", ".join(file.path for file in available[:3]) or "no files"
        fix = f"correct `files`; the dataset contains {preview}"
        raise UsageError(f"no file matches {', '.join(recipe.files)}", where, fix)
    other_format = next((file for file in listing if is_lines(file) != is_lines(listing[0])), None)
    if other_format is not None:
        what = f"matching files must have one format, got JSON lines and others: {listing[0].path}, {other_format.path}"
        raise UsageError(what, where, "narrow `files` to one format")
    return listing


def is_lines(file: HubFile) -> bool:
    """Check by its name whether a file is JSON lines."""
    return detect_format(file.path) == "lines"


def hub_inputs(recipe: SnapshotRecipe, plan: SnapshotPlan) -> list[dict[str, Any]]:
    """Return the listing as manifest inputs.

    Entries of files that are read have the row groups, with byte ranges and row counts.
    """
    read: dict[str, list[dict[str, int]]] = {}
    for piece in plan.pieces:
        group = piece.group
        entry = {"number": group.number, "first_row": group.first_row, "rows": piece.rows}
        read.setdefault(group.file.path, []).append(entry | {"start": group.start, "stop": group.stop})
    listed = ((file.path, hub_entry(recipe.dataset, recipe.revision, file)) for file in plan.listing)
    return [entry | {"row_groups": read[path]} if path in read else entry for path, entry in listed]


@dataclass(frozen=True)
class FileRequest:
    """Byte ranges to fetch from one file, in addition to its tail.

    Attributes:
        pieces: Pieces of the file, in the plan's order.
        ranges: Bytes [start, stop), one range per piece; empty for a piece inside the tail. For JSON lines, the blocks
            of the only piece.
        is_whole: Whether every row group is read. Then there is one range from 0 to the tail, so that the file can be
            hashed.

    """

    file: HubFile
    pieces: tuple[Piece, ...]
    ranges: tuple[tuple[int, int], ...]
    is_whole: bool


@dataclass(frozen=True)
class LocalPiece:
    """A piece with the local spans of its footer and row group."""

    piece: Piece
    spans: tuple[Span, ...]


@dataclass(frozen=True)
class SnapshotShard:
    """Pieces that become one Document shard; `rows` counts source rows."""

    name: str
    pieces: tuple[LocalPiece, ...]

    @property
    def rows(self) -> int:
        return sum(local.piece.rows for local in self.pieces)

    @property
    def text_bytes(self) -> int:
        """Size of the text columns according to the footers."""
        return sum(local.piece.group.text_bytes for local in self.pieces)


def file_requests(plan: SnapshotPlan) -> list[FileRequest]:
    """Return one request per file with a piece, in the plan's order."""
    pieces_by_file: dict[HubFile, list[Piece]] = {}
    for piece in plan.pieces:
        pieces_by_file.setdefault(piece.group.file, []).append(piece)
    return [_request(file, tuple(pieces), plan.tails[file.path]) for file, pieces in pieces_by_file.items()]


def _request(file: HubFile, pieces: tuple[Piece, ...], tail: Tail) -> FileRequest:
    if is_lines(file):
        return FileRequest(file, pieces, tuple(block_ranges(file.size, pieces[0].group.stop)), is_whole=False)
    tail_start = tail.spans[0].start
    if len(pieces) == tail.row_groups and tail_start > 0:
        return FileRequest(file, pieces, ((0, tail_start),), is_whole=True)
    ranges = tuple((piece.group.start, min(piece.group.stop, tail_start)) for piece in pieces)
    return FileRequest(file, pieces, ranges, is_whole=False)


def bytes_to_fetch(hub: HubFiles, recipe: SnapshotRecipe, plan: SnapshotPlan) -> int:
    """Count the bytes that `fetch_pieces` would request from the hub.

    Cached bytes do not count.
    """
    return sum(_count_missing_bytes(hub, recipe, request) for request in file_requests(plan))


def _count_missing_bytes(hub: HubFiles, recipe: SnapshotRecipe, request: FileRequest) -> int:
    """Count the bytes of a request that are not cached."""
    ranges = (bounds for bounds in request.ranges if bounds[0] < bounds[1])
    return sum(hub.count_missing_bytes(recipe.dataset, request.file, *bounds) for bounds in ranges)


def fetch_pieces(
    hub: HubFiles, recipe: SnapshotRecipe, plan: SnapshotPlan, threads: int, log_every_s: float
) -> list[LocalPiece]:
    """Fetch every piece into the cache; return the pieces in the plan's order.

    A file is checked against its hash if every row group is read.
    """
    progress = Progress(f"fetch {recipe.source}", len(plan.pieces), "row groups", log_every_s)

    def fetch(request: FileRequest) -> tuple[list[LocalPiece], int]:
        missing = _count_missing_bytes(hub, recipe, request)
        return _fetch_request(hub, recipe, request, plan.tails[request.file.path].spans), missing

    local: dict[Piece, LocalPiece] = {}
    for fetched, missing in map_in_order(fetch, file_requests(plan), threads):
        local |= {item.piece: item for item in fetched}
        if missing:
            progress.add(len(fetched), {"bytes": missing})
        else:
            progress.add_finished(len(fetched))
    return [local[piece] for piece in plan.pieces]


def _fetch_request(
    hub: HubFiles, recipe: SnapshotRecipe, request: FileRequest, tail: tuple[Span, ...]
) -> list[LocalPiece]:
    """Fetch the pieces of a request; `tail` has the spans of the file's end."""
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
    """Group consecutive pieces into shards.

    The row group that reaches `shard_text_bytes` ends a shard.
    """
    groups = grouped_by_size(pieces, lambda local: local.piece.group.text_bytes, shard_text_bytes)
    return [SnapshotShard(f"{number:05d}", tuple(group)) for number, group in enumerate(groups)]


def pin_sample(hub: HubFiles, recipe: SnapshotRecipe, threads: int, log_every_s: float) -> BuildResult:
    """Pin a sample: the listing at the commit, and the drawn row groups.

    The row groups are fetched into the cache.
    """
    plan, _, fetched = fetch_snapshot(hub, recipe, threads, log_every_s)
    counts = {"files": plan.files, "row_groups": len(plan.pieces), "rows": plan.rows}
    return BuildResult(
        [], counts, {"dumps": plan.dumps()}, external_inputs=hub_inputs(recipe, plan), provenance=fetched
    )


def list_snapshot(hub: HubFiles, recipe: SnapshotRecipe, threads: int, log_every_s: float) -> Listing:
    """List the files of a snapshot by the listing and footers.

    For JSON lines, which have no footers, the bytes are an upper bound.
    """
    listing = list_data_files(hub, recipe)
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
    """Return the plan, its pieces in the cache, and provenance.

    Provenance has the fetched bytes, planned bytes and seconds.
    """
    began, bytes_before = time.monotonic(), hub.traffic.bytes
    plan = plan_snapshot(hub, recipe, threads, log_every_s)
    _log_plan(plan, recipe.source)
    missing = bytes_to_fetch(hub, recipe, plan)
    planned, bytes_planned = time.monotonic(), hub.traffic.bytes
    pieces = fetch_pieces(hub, recipe, plan, threads, log_every_s)
    provenance = {
        "planned": {"bytes_fetched": {"value": missing, "basis": "less what the cache has"}},
        "bytes_fetched": hub.traffic.bytes - bytes_planned,
        "bytes_fetched_to_plan": bytes_planned - bytes_before,
        "seconds_of": {"plan": round(planned - began, 3), "fetch": round(time.monotonic() - planned, 3)},
    }
    return plan, pieces, provenance


def _log_plan(plan: SnapshotPlan, source: str) -> None:
    """Log the planned amounts, in total and by dump."""
    files, groups, rows = f"{plan.files} of {len(plan.listing)} files", len(plan.pieces), plan.rows
    size = sum(piece.group.stop - piece.group.start for piece in plan.pieces) / 1e6
    logger.info("plan %s: %s, %d row groups, %d rows, %.1f MB", source, files, groups, rows, size)
    for dump, counts in plan.dumps().items():
        share = 100 * counts["rows"] / max(rows, 1)
        logger.info("plan %s: %s: %d row groups, %.1f %% of the rows", source, dump, counts["row_groups"], share)
