"""Stage `normalize`, which converts the rows of a stage A source to Documents."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pipeline_assets.corpus.readers.local import Piece
from pipeline_assets.corpus.readers.source_folder import ByteRange
from pipeline_assets.spine.engine import COMPRESSION_RATIO, RunSettings, limit_workers, run_stage
from pipeline_assets.spine.manifest import StageVersion
from pipeline_assets.spine.shard import Shard
from pipeline_assets.spine.stage import Work, group_by_size, number_shards
from pipeline_assets.spine.staging import Receipt, StagingDir

NORMALIZE_STAGE = StageVersion("normalize", 3)
ShardT = TypeVar("ShardT", bound=Shard)


@dataclass(frozen=True)
class PieceShard:
    """Consecutive pieces of source files that become one Document shard."""

    name: str
    pieces: tuple[Piece, ...]
    rows: int = 0  # unknown


def piece_shards(pieces: Iterable[Piece], shard_bytes: int) -> list[PieceShard]:
    """Group pieces into shards by size; bytes of undivided files count four times."""
    groups = group_by_size(pieces, _unpacked_bytes, shard_bytes)
    return [PieceShard(name, tuple(group)) for name, group in number_shards(groups)]


def _unpacked_bytes(piece: Piece) -> int:
    is_packed = isinstance(piece, ByteRange) and piece.stop is None
    return piece.bytes * (COMPRESSION_RATIO if is_packed else 1)


def convert_pieces(
    staging: StagingDir, shards: Sequence[PieceShard], work: Work[PieceShard], settings: RunSettings
) -> dict[str, Receipt]:
    """Convert shards of source files; return receipts by name, in shard order."""
    sizes = [sum(map(_unpacked_bytes, shard.pieces)) // COMPRESSION_RATIO for shard in shards]
    return convert_shards(staging, work, shards, limit_workers(staging, settings, sizes))


def convert_shards(
    staging: StagingDir, work: Work[ShardT], shards: Sequence[ShardT], settings: RunSettings
) -> dict[str, Receipt]:
    """Convert the shards of a source; return receipts by name, in shard order."""
    receipts = run_stage(NORMALIZE_STAGE.name, work, shards, staging, settings)
    return {shard.name: receipt for shard, receipt in zip(shards, receipts, strict=True)}
