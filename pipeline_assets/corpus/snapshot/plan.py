"""What a snapshot will read: the listing, the draw, which bytes are asked of the hub, and shards of what came."""

import fnmatch
import functools
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import PurePosixPath
from types import TracebackType
from typing import Any, Self

from pipeline_assets.corpus.readers.columns import check_columns
from pipeline_assets.corpus.readers.hub_files import HubFiles, Span
from pipeline_assets.corpus.readers.hub_listing import HubFile
from pipeline_assets.corpus.readers.parquet import RowGroup, read_footer, row_groups
from pipeline_assets.corpus.readers.raw_pin import hub_entry, in_order
from pipeline_assets.corpus.readers.source_folder import format_of
from pipeline_assets.corpus.sampling.row_groups import Piece, choose_pieces
from pipeline_assets.corpus.snapshot.drawn_lines import block_ranges, draw_prefixes, known_prefix, read_prefix
from pipeline_assets.corpus.snapshot.recipe import SnapshotRecipe
from pipeline_assets.corpus.spine.errors import UsageError, key
from pipeline_assets.corpus.spine.target import BuildResult
from pipeline_assets.corpus.spine.usage import Progress, StepTimer
from pipeline_assets.corpus.spine.worker import grouped_by_size
from pipeline_assets.corpus.trust.figures import Listing

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

    @property
    def start(self) -> int:
        """From here on the file's bytes are here."""
        return self.spans[0].start


class FooterReader:
    """Reads the footers of files, each once.

    Attributes:
        tails: by path, of the files that were asked for.
    """

    def __init__(self, hub: HubFiles, recipe: SnapshotRecipe, threads: int, log_every_s: float) -> None:
        self.tails: dict[str, Tail] = {}
        self._hub, self._recipe, self._log_every_s = hub, recipe, log_every_s
        self._pool = ThreadPoolExecutor(threads)
        self._asked: dict[str, Future[tuple[Tail, list[RowGroup]]]] = {}
        self._spoke = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def soon(self, files: Sequence[HubFile]) -> None:
        """These will be asked for."""
        for file in files:
            if file.path not in self._asked:
                self._asked[file.path] = self._pool.submit(self._read, file)

    def row_groups(self, file: HubFile) -> list[RowGroup]:
        """Row groups of a file, in file order, with the bounds of the columns that the recipe filters by.

        Raises:
            InputError: from the hub.
            UsageError: there is no column that the recipe names.
        """
        self.soon([file])
        self.tails[file.path], groups = self._asked[file.path].result()
        now = time.monotonic()
        if now - self._spoke >= self._log_every_s:
            self._spoke = now
            fetched = self._hub.traffic.bytes / 1e6
            logger.info("footers %s: %d files, %.1f MB fetched", self._recipe.source, len(self.tails), fetched)
        return groups

    def _read(self, file: HubFile) -> tuple[Tail, list[RowGroup]]:
        recipe = self._recipe
        where = f"{recipe.dataset}@{recipe.revision}:{file.path}"
        footer = read_footer(self._hub, recipe.dataset, recipe.revision, file)
        schema = footer.metadata.schema.to_arrow_schema()
        columns = recipe.columns
        check_columns(schema, [("id", columns.id), ("created_at", columns.created_at)], where)
        for rule in recipe.parsed_rules():
            if rule.column not in schema.names:
                what = f"there is no column `{rule.column}`; it has {', '.join(schema.names)}"
                raise UsageError(
                    what, where, f"correct the rule `{rule.text}` {key('rules', 'in the recipe', 'of {}')}"
                )
        filtered = [rule.column for rule in recipe.row_rules(schema.names)]
        groups = row_groups(footer, file, recipe.columns.text, where, filtered)
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
    if has_lines(listing):
        return _plan_lines(hub, recipe, listing, threads, log_every_s, pinned)
    with FooterReader(hub, recipe, threads, log_every_s) as footers:
        pieces = choose_pieces(listing, footers.row_groups, recipe.seed, recipe.amount.limit, footers.soon)
    return SnapshotPlan(listing, pieces, footers.tails)


def list_rows(hub: HubFiles, recipe: SnapshotRecipe) -> list[HubFile]:
    """The files that the recipe's patterns match, sorted by path.

    Raises:
        InputError: from the hub.
        UsageError: there is none, or some are JSON lines and others are not.
    """
    everything = hub.list_files(recipe.dataset, recipe.revision)
    listing = [file for file in everything if any(fnmatch.fnmatchcase(file.path, pattern) for pattern in recipe.files)]
    if not listing:
        shown = ", ".join(file.path for file in everything[:3]) or "no files"
        where = f"{recipe.dataset}@{recipe.revision}"
        raise UsageError(f"no file matches {', '.join(recipe.files)}", where, f"correct `files`; there are {shown}")
    first, other = listing[0], next((file for file in listing if is_lines(file) != is_lines(listing[0])), None)
    if other is not None:
        what = f"some files that match are JSON lines, others are not: {first.path}, {other.path}"
        raise UsageError(what, f"{recipe.dataset}@{recipe.revision}", "narrow `files` to one format")
    return listing


def is_lines(file: HubFile) -> bool:
    """Whether the file is one of JSON lines, by its name."""
    return format_of(file.path) == "lines"


def has_lines(listing: Sequence[HubFile]) -> bool:
    """Whether the files of a listing, which are alike, are JSON lines."""
    return is_lines(listing[0])


def _plan_lines(
    hub: HubFiles,
    recipe: SnapshotRecipe,
    listing: Sequence[HubFile],
    threads: int,
    log_every_s: float,
    pinned: Sequence[Mapping[str, Any]],
) -> SnapshotPlan:
    limit = recipe.amount.limit
    if pinned:
        start = len(f"{recipe.dataset}@{recipe.revision}:")
        entries = {entry["name"][start:]: entry for entry in pinned if "row_groups" in entry}
        files = {file.path: file for file in listing}
        drawn = {
            path: known_prefix(hub, recipe, files[path], entry) for path, entry in entries.items() if path in files
        }
    else:
        progress = Progress(f"draw {recipe.source}", len(listing), "files", log_every_s)
        read = functools.partial(read_prefix, hub, recipe, unit=limit[0])
        drawn = draw_prefixes(listing, lambda file, most: read(file, limit=most), recipe.seed, limit, threads, progress)
    groups = [drawn[file.path].row_group(file) for file in listing if file.path in drawn]
    tails = {path: Tail((), 2 - prefix.is_whole, prefix.columns) for path, prefix in drawn.items()}
    return SnapshotPlan(listing, [Piece(group, group.rows) for group in groups], tails)


def hub_inputs(recipe: SnapshotRecipe, plan: SnapshotPlan) -> list[dict[str, Any]]:
    """The listing as manifest inputs; of files that were read, which row groups, where they lie and how many rows."""
    read: dict[str, list[dict[str, int]]] = {}
    for piece in plan.pieces:
        group = piece.group
        entry = {"number": group.number, "first_row": group.first_row, "rows": piece.rows}
        read.setdefault(group.file.path, []).append(entry | {"start": group.start, "stop": group.stop})
    inputs = []
    for file in plan.listing:
        listed = hub_entry(recipe.dataset, recipe.revision, file)
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


def file_requests(plan: SnapshotPlan) -> list[FileRequest]:
    """One a file that has a piece, in the plan's order."""
    wanted: dict[str, list[Piece]] = {}
    for piece in plan.pieces:
        wanted.setdefault(piece.group.file.path, []).append(piece)
    requests = []
    for path, pieces in wanted.items():
        tail, file = plan.tails[path], pieces[0].group.file
        if is_lines(file):
            ranges = tuple(block_ranges(file.size, pieces[0].group.stop))
            requests.append(FileRequest(file, tuple(pieces), ranges, is_whole=False))
            continue
        if len(pieces) == tail.row_groups and tail.start > 0:
            requests.append(FileRequest(file, tuple(pieces), ((0, tail.start),), is_whole=True))
            continue
        ranges = tuple((piece.group.start, min(piece.group.stop, tail.start)) for piece in pieces)
        requests.append(FileRequest(file, tuple(pieces), ranges, is_whole=False))
    return requests


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
    for fetched, missing in in_order(fetch, file_requests(plan), threads):
        local |= {item.piece: item for item in fetched}
        if missing:
            progress.add(len(fetched), {"bytes": missing})
        else:
            progress.add_done_before(len(fetched))
    return [local[piece] for piece in plan.pieces]


def _fetched(hub: HubFiles, recipe: SnapshotRecipe, request: FileRequest, tail: Sequence[Span]) -> list[LocalPiece]:
    """The request's pieces with their bytes, those of `tail` among them."""
    if request.is_whole:
        rest = hub.fetch_rest(recipe.dataset, recipe.revision, request.file, tail)
        return [LocalPiece(piece, (rest, *tail)) for piece in request.pieces]
    if is_lines(request.file):
        blocks = (hub.fetch(recipe.dataset, recipe.revision, request.file, *block) for block in request.ranges)
        return [LocalPiece(request.pieces[0], tuple(blocks))]
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


def raw_of_hub(hub: HubFiles, recipe: SnapshotRecipe, threads: int, log_every_s: float) -> BuildResult:
    """The raw pin of a sample: the listing at the commit, and what is drawn of it, fetched into the cache.

    Raises:
        InputError: from the hub.
    """
    plan, _, fetched = fetch_snapshot(hub, recipe, threads, log_every_s)
    counts = {"files": plan.files, "row_groups": len(plan.pieces), "rows": plan.rows}
    return BuildResult([], counts, {"dumps": plan.dumps()}, outside=hub_inputs(recipe, plan), provenance=fetched)


def list_snapshot(hub: HubFiles, recipe: SnapshotRecipe, threads: int, log_every_s: float) -> Listing:
    """What a snapshot will read, by the listing and by footers; of JSON lines, which have none, the most that it may.

    Raises: as `plan_snapshot`.
    """
    listing = list_rows(hub, recipe)
    source = f"{recipe.source}: {recipe.dataset}@{recipe.revision}"
    if has_lines(listing):
        blocks = ((file, block) for file in listing for block in block_ranges(file.size))
        missing = sum(hub.bytes_missing(recipe.dataset, file, *block) for file, block in blocks)
        return Listing(tuple(hub_entry(recipe.dataset, recipe.revision, file) for file in listing), {source: missing})
    plan = plan_snapshot(hub, recipe, threads, log_every_s)
    return Listing(tuple(hub_inputs(recipe, plan)), {source: bytes_to_fetch(hub, recipe, plan)}, plan.text_bytes)


def fetch_snapshot(
    hub: HubFiles, recipe: SnapshotRecipe, threads: int, log_every_s: float
) -> tuple[SnapshotPlan, list[LocalPiece], dict[str, Any]]:
    """The plan, its pieces in the cache, and what provenance tells of that: what was fetched, and was to be.

    Raises: as `plan_snapshot`.
    """
    laps = StepTimer(lambda: hub.traffic.bytes)
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
