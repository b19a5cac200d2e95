"""The bytes of a snapshot: which are asked of the hub, and shards of what came."""

import functools
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import starmap
from typing import Any

from pipeline_assets.corpus.readers.hub_files import HubFile, HubFiles, Span, check_whole
from pipeline_assets.corpus.readers.raw_pin import hub_entry, in_order
from pipeline_assets.corpus.sampling.row_groups import Piece
from pipeline_assets.corpus.snapshot.drawn_lines import block_ranges
from pipeline_assets.corpus.snapshot.plan import SnapshotPlan, Tail, hub_inputs, is_lines, list_rows, plan_snapshot
from pipeline_assets.corpus.snapshot.recipe import SnapshotRecipe
from pipeline_assets.corpus.spine.target import BuildResult
from pipeline_assets.corpus.spine.usage import Progress, StepTimer
from pipeline_assets.corpus.spine.worker import grouped_by_size
from pipeline_assets.corpus.trust.figures import Listing

logger = logging.getLogger("corpusmill")


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
    return sum(hub.bytes_missing(recipe.dataset, request.file, *bounds) for bounds in asked)


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
            progress.add_done_before(len(fetched))
    return [local[piece] for piece in plan.pieces]


def _fetched(hub: HubFiles, recipe: SnapshotRecipe, request: FileRequest, tail: tuple[Span, ...]) -> list[LocalPiece]:
    """The request's pieces with their bytes, those of `tail` among them."""
    fetch = functools.partial(hub.fetch, recipe.dataset, recipe.revision, request.file)
    if request.is_whole:
        whole = (fetch(0, tail[0].start), *tail)
        check_whole(request.file, whole, recipe.where(request.file.path))
        return [LocalPiece(piece, whole) for piece in request.pieces]
    if is_lines(request.file):
        return [LocalPiece(request.pieces[0], tuple(starmap(fetch, request.ranges)))]
    return [
        LocalPiece(piece, (fetch(start, stop), *tail) if start < stop else tail)
        for piece, (start, stop) in zip(request.pieces, request.ranges, strict=True)
    ]


def shards_of(pieces: Sequence[LocalPiece], shard_text_bytes: int) -> list[SnapshotShard]:
    """Consecutive pieces as shards, each closed by the row group that brings its text to this size."""
    groups = grouped_by_size(pieces, lambda local: local.piece.group.text_bytes, shard_text_bytes)
    return [SnapshotShard(f"{number:05d}", tuple(group)) for number, group in enumerate(groups)]


def raw_of_hub(hub: HubFiles, recipe: SnapshotRecipe, threads: int, log_every_s: float) -> BuildResult:
    """The raw pin of a sample: the listing at the commit, and what is drawn of it, fetched into the cache."""
    plan, _, fetched = fetch_snapshot(hub, recipe, threads, log_every_s)
    counts = {"files": plan.files, "row_groups": len(plan.pieces), "rows": plan.rows}
    return BuildResult([], counts, {"dumps": plan.dumps()}, outside=hub_inputs(recipe, plan), provenance=fetched)


def list_snapshot(hub: HubFiles, recipe: SnapshotRecipe, threads: int, log_every_s: float) -> Listing:
    """What a snapshot will read, by the listing and footers; of JSON lines, which have none, the most that it may."""
    listing = list_rows(hub, recipe)
    source = f"{recipe.source}: {recipe.dataset}@{recipe.revision}"
    if is_lines(listing[0]):
        blocks = ((file, block) for file in listing for block in block_ranges(file.size))
        missing = sum(hub.bytes_missing(recipe.dataset, file, *block) for file, block in blocks)
        return Listing(tuple(hub_entry(recipe.dataset, recipe.revision, file) for file in listing), {source: missing})
    plan = plan_snapshot(hub, recipe, threads, log_every_s)
    return Listing(tuple(hub_inputs(recipe, plan)), {source: bytes_to_fetch(hub, recipe, plan)}, plan.text_bytes)


def fetch_snapshot(
    hub: HubFiles, recipe: SnapshotRecipe, threads: int, log_every_s: float
) -> tuple[SnapshotPlan, list[LocalPiece], dict[str, Any]]:
    """The plan, its pieces in the cache, and what provenance tells of that: what was fetched, and was to be."""
    laps = StepTimer(lambda: hub.traffic.bytes)
    plan = plan_snapshot(hub, recipe, threads, log_every_s)
    _log_plan(plan, recipe.source)
    missing = bytes_to_fetch(hub, recipe, plan)
    laps.end("plan")
    pieces = fetch_pieces(hub, recipe, plan, threads, log_every_s)
    laps.end("fetch")
    told = {
        "planned": {"bytes_fetched": {"value": missing, "basis": "less what the cache has"}},
        "bytes_fetched": laps.counted["fetch"],
        "bytes_fetched_to_plan": laps.counted["plan"],
        "seconds_of": laps.seconds,
        "source_text_bytes": plan.text_bytes,
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
