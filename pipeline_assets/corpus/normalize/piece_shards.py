"""Shards of consecutive pieces of source files."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pipeline_assets.corpus.normalize.stage import convert_shards
from pipeline_assets.corpus.readers import source_folder
from pipeline_assets.corpus.readers.local import Piece
from pipeline_assets.spine.engine import COMPRESSION_RATIO, RunSettings, limit_workers
from pipeline_assets.spine.stage import Work, group_by_size, number_shards
from pipeline_assets.spine.staging import Receipt, StagingDir


@dataclass(frozen=True)
class PieceShard:
    """Consecutive pieces that become one Document shard."""

    name: str
    pieces: tuple[Piece, ...]
    rows: int = 0  # unknown


def piece_shards(pieces: Iterable[Piece], shard_bytes: int) -> list[PieceShard]:
    """Group pieces into shards by size; bytes of undivided files count four times."""
    groups = group_by_size(pieces, _unpacked_bytes, shard_bytes)
    return [PieceShard(name, tuple(group)) for name, group in number_shards(groups)]


def _unpacked_bytes(piece: Piece) -> int:
    is_packed = isinstance(piece, source_folder.ByteRange) and piece.stop is None
    return piece.bytes * (COMPRESSION_RATIO if is_packed else 1)


def convert_pieces(
    staging: StagingDir, shards: Sequence[PieceShard], work: Work[PieceShard], settings: RunSettings
) -> dict[str, Receipt]:
    """Convert shards of a source; return receipts by shard name, in file order."""
    sizes = [sum(map(_unpacked_bytes, shard.pieces)) // COMPRESSION_RATIO for shard in shards]
    return convert_shards(staging, work, shards, limit_workers(staging, settings, sizes))
