"""Fetching and sharding of the row groups of a snapshot."""

import functools
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import starmap
from typing import Any

from pipeline_assets.corpus.readers.hub_cache import Span, check_file_hash
from pipeline_assets.corpus.readers.hub_files import HubFiles, map_in_order
from pipeline_assets.corpus.readers.hub_listing import HubFile
from pipeline_assets.corpus.snapshot.draw import Piece
from pipeline_assets.corpus.snapshot.line_prefixes import block_ranges
from pipeline_assets.corpus.snapshot.plan import SnapshotPlan, Tail, is_json_lines, plan_snapshot
from pipeline_assets.corpus.snapshot.recipe import SnapshotRecipe
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.progress import Progress
from pipeline_assets.spine.stage import group_by_size, number_shards

logger = logging.getLogger("corpusmill")


@dataclass(frozen=True)
class FileRequest:
    """Byte ranges to fetch from one file, in addition to its cached tail.

    Attributes:
        pieces: Pieces of the file, in the plan's order.
        ranges: Byte ranges [start, stop) to fetch. JSON lines: the ranges of the only piece. Parquet: one range up to
            the tail if `is_whole`, else one per piece, which is empty (stop <= start) if the tail contains the piece.
        tail_spans: Cached spans at the end of the file; empty for JSON lines.
        is_whole: Whether the fetched range and the tail form a whole Parquet file, whose hash must be checked. False if
            the tail alone is the file, because its hash was checked when the tail was fetched.
    """

    file: HubFile
    pieces: tuple[Piece, ...]
    ranges: tuple[tuple[int, int], ...]
    tail_spans: tuple[Span, ...]
    is_whole: bool


@dataclass(frozen=True)
class FetchedPiece:
    """Piece with the cached spans of its rows and, for Parquet, the file's footer."""

    piece: Piece
    spans: tuple[Span, ...]


@dataclass(frozen=True)
class SnapshotShard:
    """Pieces that become one Document shard."""

    name: str
    pieces: tuple[FetchedPiece, ...]

    @property
    def rows(self) -> int:
        return sum(local.piece.rows for local in self.pieces)

    @property
    def text_bytes(self) -> int:
        return sum(local.piece.group.text_bytes for local in self.pieces)


def file_requests(plan: SnapshotPlan) -> list[FileRequest]:
    """Return one request for each file with pieces to read, in the plan's order."""
    pieces_by_file: dict[HubFile, list[Piece]] = {}
    for piece in plan.pieces:
        pieces_by_file.setdefault(piece.group.file, []).append(piece)
    return [_file_request(file, tuple(pieces), plan.tails[file.path]) for file, pieces in pieces_by_file.items()]


def _file_request(file: HubFile, pieces: tuple[Piece, ...], tail: Tail) -> FileRequest:
    if is_json_lines(file):
        ranges = tuple(block_ranges(file.size, pieces[0].group.stop))
        return FileRequest(file, pieces, ranges, tail.spans, is_whole=False)
    tail_start = tail.spans[0].start
    if len(pieces) == tail.row_groups and tail_start > 0:
        return FileRequest(file, pieces, ((0, tail_start),), tail.spans, is_whole=True)
    ranges = tuple((piece.group.start, min(piece.group.stop, tail_start)) for piece in pieces)
    return FileRequest(file, pieces, ranges, tail.spans, is_whole=False)


def bytes_to_fetch(hub: HubFiles, recipe: SnapshotRecipe, plan: SnapshotPlan) -> int:
    """Count the bytes that `fetch_pieces` would request from the hub."""
    return sum(_count_missing_bytes(hub, recipe, request) for request in file_requests(plan))


def _count_missing_bytes(hub: HubFiles, recipe: SnapshotRecipe, request: FileRequest) -> int:
    return sum(hub.count_missing_bytes(recipe.dataset, request.file, *bounds) for bounds in request.ranges)


def fetch_pieces(
    hub: HubFiles, recipe: SnapshotRecipe, plan: SnapshotPlan, settings: RunSettings
) -> list[FetchedPiece]:
    """Fetch the pieces of a plan in order; check the hashes of whole files."""
    progress = Progress(f"fetch {recipe.source}", len(plan.pieces), "row groups", settings.log_every_s)

    def fetch(request: FileRequest) -> tuple[list[FetchedPiece], int]:
        missing = _count_missing_bytes(hub, recipe, request)
        return _fetch_request(hub, recipe, request), missing

    local: dict[Piece, FetchedPiece] = {}
    for fetched, missing in map_in_order(fetch, file_requests(plan), settings.fetch_threads):
        local |= {item.piece: item for item in fetched}
        if missing:
            progress.add(len(fetched), {"bytes": missing})
        else:
            progress.add_earlier(len(fetched))
    return [local[piece] for piece in plan.pieces]


def _fetch_request(hub: HubFiles, recipe: SnapshotRecipe, request: FileRequest) -> list[FetchedPiece]:
    fetch = functools.partial(hub.fetch, recipe.dataset, recipe.revision, request.file)
    if request.is_whole or is_json_lines(request.file):
        spans = (*starmap(fetch, request.ranges), *request.tail_spans)
        if request.is_whole:
            check_file_hash(request.file, spans, recipe.input_name(request.file.path))
        return [FetchedPiece(piece, spans) for piece in request.pieces]
    return [
        FetchedPiece(piece, (fetch(start, stop), *request.tail_spans) if start < stop else request.tail_spans)
        for piece, (start, stop) in zip(request.pieces, request.ranges, strict=True)
    ]


def plan_shards(pieces: Sequence[FetchedPiece], shard_text_bytes: int) -> list[SnapshotShard]:
    """Group consecutive pieces into shards of at least `shard_text_bytes`.

    The last shard may be smaller.
    """
    groups = group_by_size(pieces, lambda local: local.piece.group.text_bytes, shard_text_bytes)
    return [SnapshotShard(name, tuple(group)) for name, group in number_shards(groups)]


def fetch_snapshot(
    hub: HubFiles, recipe: SnapshotRecipe, settings: RunSettings
) -> tuple[SnapshotPlan, list[FetchedPiece], dict[str, Any]]:
    """Plan and fetch a snapshot; return the plan, the fetched pieces and provenance."""
    began, bytes_before = time.monotonic(), hub.traffic.bytes
    plan = plan_snapshot(hub, recipe, settings)
    _log_plan(plan, recipe.source)
    missing = bytes_to_fetch(hub, recipe, plan)
    planned, bytes_planned = time.monotonic(), hub.traffic.bytes
    pieces = fetch_pieces(hub, recipe, plan, settings)
    provenance = {
        "planned": {"bytes_fetched": {"value": missing, "basis": "excluding cached bytes"}},
        "bytes_fetched": hub.traffic.bytes - bytes_planned,
        "bytes_fetched_to_plan": bytes_planned - bytes_before,
        "seconds_of": {"plan": round(planned - began, 3), "fetch": round(time.monotonic() - planned, 3)},
    }
    return plan, pieces, provenance


def _log_plan(plan: SnapshotPlan, source: str) -> None:
    """Log the planned rows, row groups and bytes, in total and by dump."""
    files, groups, rows = f"{plan.file_count} of {len(plan.listing)} files", len(plan.pieces), plan.rows
    size = sum(piece.group.stop - piece.group.start for piece in plan.pieces) / 1e6
    logger.info("plan %s: %s, %d row groups, %d rows, %.1f MB", source, files, groups, rows, size)
    for dump, counts in plan.count_by_dump().items():
        share = 100 * counts["rows"] / max(rows, 1)
        logger.info("plan %s: %s: %d row groups, %.1f %% of the rows", source, dump, counts["row_groups"], share)
