"""What a snapshot will hold and cost, from its plan: rows and bytes to fetch exactly, documents and text as far as the
footers tell.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline_assets.corpus.document_shards import SHARDS
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX
from pipeline_assets.corpus.planning.estimate import Estimate, exactly, total
from pipeline_assets.corpus.planning.memory import snapshot_memory
from pipeline_assets.corpus.planning.passing_rows import BASIS as BOUNDS
from pipeline_assets.corpus.planning.passing_rows import passing_rows
from pipeline_assets.corpus.planning.rates import at_work, fetch_seconds
from pipeline_assets.corpus.planning.track_record import TrackRecord
from pipeline_assets.corpus.sampling.row_groups import Piece
from pipeline_assets.corpus.snapshot.plan import SnapshotPlan
from pipeline_assets.corpus.snapshot.recipe import SnapshotRecipe
from pipeline_assets.corpus.spine.engine import EngineSettings

# Bytes of Document lines in zstd, level 3, to bytes of the row groups in Parquet: 1.4 MB of FineWeb and FineWeb-Edu,
# 2 MB of Python's documentation, 180 MB of manuals. Bounds: other texts, and levels 1 to 22.
_STORED = {
    "UNCOMPRESSED": (0.22, 0.36, 0.46),
    "SNAPPY": (0.48, 0.65, 0.78),
    "LZ4": (0.48, 0.63, 0.78),
    "ZSTD": (0.70, 0.93, 1.15),
    "GZIP": (0.75, 1.00, 1.20),
    "BROTLI": (0.95, 1.15, 1.45),
}
_STORED_BASIS = "row group sizes in the footers"
_OTHER_CODEC = (0.20, 0.65, 1.45)
_TEXT = Estimate(0.96, 0.998, 1.01, "column sizes in the footers")  # page headers are in them, repeats may not be
_GOOD = Estimate(0.99, 1.0, 1.0, "")  # rows without defects or repeated ids: nearly all, or the build stops
_ID_BYTES = 24  # of a document in the sorted ids that a build keeps until it is sealed
_RECEIPTS_BYTES = 4096  # of a shard


@dataclass(frozen=True)
class ShardForecast:
    """One Document shard: where it will lie, and what it will hold."""

    path: str
    documents: Estimate
    text_bytes: Estimate
    stored_bytes: Estimate


@dataclass(frozen=True)
class SnapshotForecast:
    """A snapshot before it is taken.

    Attributes:
        missing_bytes: what is to be fetched.
        rows: source rows that will be read.
        source_text_bytes: their text, before any rule.
        largest_row_group_bytes: as fetched.
    """

    missing_bytes: int
    rows: int
    source_text_bytes: int
    largest_row_group_bytes: int
    shards: Sequence[ShardForecast]

    @property
    def documents(self) -> Estimate:
        bases = [shard.documents.basis for shard in self.shards]
        return total((shard.documents for shard in self.shards), max(bases, key=bases.count, default=BOUNDS)).counted()

    @property
    def text_bytes(self) -> Estimate:
        return total((shard.text_bytes for shard in self.shards), _TEXT.basis)

    @property
    def stored_bytes(self) -> Estimate:
        return total((shard.stored_bytes for shard in self.shards), _STORED_BASIS)

    def figures(self, record: TrackRecord, engine: EngineSettings, share_left: float = 1.0) -> dict[str, Estimate]:
        """What the manifest will have real numbers of, planned.

        Args:
            share_left: of the work, where shards were finished before.
        """
        stored, documents = self.stored_bytes, self.documents
        ids = _ID_BYTES * documents.likely + _RECEIPTS_BYTES * len(self.shards)
        peak = Estimate(stored.low, stored.likely + ids, 2 * stored.high + 2 * ids, stored.basis)
        figures = {
            "bytes_fetched": exactly(self.missing_bytes, "row groups in the footers, less what the cache has"),
            "rows": exactly(self.rows, "footers"),
            "documents": documents,
            "text_bytes": self.text_bytes.counted(),
            "bytes": stored.counted(),
            "peak_disk_bytes": peak.counted(),
            "peak_memory_bytes": snapshot_memory(engine, self.source_text_bytes, self.largest_row_group_bytes),
        }
        fetching = fetch_seconds(self.missing_bytes, record.fetch_rate())
        if fetching is not None:
            figures["fetch_seconds"] = fetching
        rates, working = record.rates(), at_work(min(engine.workers, len(self.shards)))
        seconds = share_left * self.source_text_bytes / (rates.convert * working)
        return figures | {"build_seconds": rates.seconds(rates.start_s + seconds)}


def forecast_snapshot(
    plan: SnapshotPlan, recipe: SnapshotRecipe, missing_bytes: int, record: TrackRecord
) -> SnapshotForecast:
    """
    Raises:
        UsageError: a rule compares a column with a constant of another type.
    """
    share = record.kept_share(recipe)
    return SnapshotForecast(
        missing_bytes=missing_bytes,
        rows=plan.rows,
        source_text_bytes=sum(piece.source_text_bytes for piece in plan.pieces),
        largest_row_group_bytes=max((piece.group.stop - piece.group.start for piece in plan.pieces), default=0),
        shards=[
            _shard(f"{SHARDS}/{name}{SUFFIX}", pieces, plan, recipe, share)
            for name, pieces in plan.shards(recipe.shard_text_bytes)
        ],
    )


def _shard(
    path: str, pieces: Sequence[Piece], plan: SnapshotPlan, recipe: SnapshotRecipe, share: Estimate | None
) -> ShardForecast:
    documents, texts, stored = [], [], []
    for piece in pieces:
        rules = recipe.row_rules(plan.tails[piece.group.file.path].columns)
        kept = _kept(passing_rows(piece.group, piece.rows, rules), piece.rows, share)
        documents.append(kept)
        of_rows = kept.over(exactly(max(piece.rows, 1), kept.basis))
        texts.append(exactly(piece.source_text_bytes, "").times(_TEXT).times(of_rows))
        size = (piece.group.stop - piece.group.start) * piece.rows / max(piece.group.rows, 1)
        stored.append(exactly(size, "").times(_stored(piece.group.codec)).times(of_rows))
    basis = next((kept.basis for kept in documents if kept.basis != BOUNDS), BOUNDS)
    good = total(documents, basis).times(_GOOD, basis)
    return ShardForecast(path, good, total(texts, _TEXT.basis), total(stored, _STORED_BASIS))


def _kept(passing: Estimate, rows: int, share: Estimate | None) -> Estimate:
    """Rows of a piece that pass: what its bounds settle, they settle; the rest by earlier snapshots, if there are
    any.
    """
    if passing.is_exact or share is None:
        return passing
    measured = exactly(rows, "").times(share).counted()
    low, high = max(passing.low, measured.low), min(passing.high, measured.high)
    return Estimate(min(low, high), min(max(measured.likely, low), high), high, share.basis)


def _stored(codec: str) -> Estimate:
    low, likely, high = _STORED.get(codec, _OTHER_CODEC)
    return Estimate(low, likely, high, _STORED_BASIS)
