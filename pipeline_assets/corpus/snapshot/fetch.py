"""The bytes of a snapshot's plan: what is asked of the hub, how much of that is missing, and shards of what came."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from pipeline_assets.corpus.planning.figures import Listing
from pipeline_assets.corpus.readers.hub_files import HubFile, HubFiles, Span
from pipeline_assets.corpus.sampling.row_groups import Piece
from pipeline_assets.corpus.snapshot.plan import SnapshotPlan, hub_inputs, log_plan, plan_snapshot
from pipeline_assets.corpus.snapshot.recipe import SnapshotRecipe
from pipeline_assets.corpus.spine.progress import Progress
from pipeline_assets.corpus.spine.usage import Laps


@dataclass(frozen=True)
class FileRequest:
    """What is asked of the hub for one file, beyond the tail that came with its footer.

    Attributes:
        pieces: of the file, in the plan's order.
        ranges: bytes [start, stop), one for each piece; empty for a piece that came with the tail.
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


def file_requests(plan: SnapshotPlan) -> list[FileRequest]:
    """One a file that has a piece, in the plan's order."""
    wanted: dict[str, list[Piece]] = {}
    for piece in plan.pieces:
        wanted.setdefault(piece.group.file.path, []).append(piece)
    requests = []
    for path, pieces in wanted.items():
        tail, file = plan.tails[path], pieces[0].group.file
        if len(pieces) == tail.row_groups and tail.start > 0:
            requests.append(FileRequest(file, tuple(pieces), ((0, tail.start),), is_whole=True))
            continue
        ranges = tuple((piece.group.start, min(piece.group.stop, tail.start)) for piece in pieces)
        requests.append(FileRequest(file, tuple(pieces), ranges, is_whole=False))
    return requests


def list_snapshot(hub: HubFiles, recipe: SnapshotRecipe, threads: int, log_every_s: float) -> Listing:
    """What a snapshot will read; fetches the listing and footers. Errors as `plan_snapshot`."""
    plan = plan_snapshot(hub, recipe, threads, log_every_s)
    missing = {f"{recipe.source}: {recipe.dataset}@{recipe.revision}": bytes_to_fetch(hub, recipe, plan)}
    return Listing(tuple(hub_inputs(recipe, plan)), missing, plan.text_bytes)


def fetch_snapshot(
    hub: HubFiles, recipe: SnapshotRecipe, threads: int, log_every_s: float
) -> tuple[SnapshotPlan, list[LocalPiece], dict[str, Any]]:
    """The plan, its pieces in the cache, and what provenance tells of that: what was fetched, and was to be.

    Raises: as `plan_snapshot`.
    """
    laps = Laps(lambda: hub.traffic.bytes)
    plan = plan_snapshot(hub, recipe, threads, log_every_s)
    log_plan(plan, recipe.source)
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


def bytes_to_fetch(hub: HubFiles, recipe: SnapshotRecipe, plan: SnapshotPlan) -> int:
    """What `fetch_pieces` would ask of the hub: the ranges, less what the cache has of them."""
    return sum(_bytes_missing(hub, recipe, request) for request in file_requests(plan))


def _bytes_missing(hub: HubFiles, recipe: SnapshotRecipe, request: FileRequest) -> int:
    return sum(
        hub.bytes_missing(recipe.dataset, request.file, start, stop) for start, stop in request.ranges if start < stop
    )


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
    pool = ThreadPoolExecutor(threads)
    try:
        for fetched, missing in pool.map(fetch, file_requests(plan)):
            local |= {item.piece: item for item in fetched}
            if missing:
                progress.add(len(fetched), {"bytes": missing})
            else:
                progress.add_done_before(len(fetched))
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    return [local[piece] for piece in plan.pieces]


def _fetched(hub: HubFiles, recipe: SnapshotRecipe, request: FileRequest, tail: Sequence[Span]) -> list[LocalPiece]:
    """The request's pieces with their bytes, those of `tail` among them."""
    if request.is_whole:
        rest = hub.fetch_rest(recipe.dataset, recipe.revision, request.file, tail)
        return [LocalPiece(piece, (rest, *tail)) for piece in request.pieces]
    return [
        LocalPiece(piece, (hub.fetch(recipe.dataset, recipe.revision, request.file, start, stop), *tail))
        if start < stop
        else LocalPiece(piece, tuple(tail))
        for piece, (start, stop) in zip(request.pieces, request.ranges, strict=True)
    ]


def shards_of(plan: SnapshotPlan, pieces: Sequence[LocalPiece], shard_text_bytes: int) -> list[SnapshotShard]:
    """The plan's shards, of pieces whose bytes are here."""
    local = {item.piece: item for item in pieces}
    return [
        SnapshotShard(name, tuple(local[piece] for piece in group)) for name, group in plan.shards(shard_text_bytes)
    ]
