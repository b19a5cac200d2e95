"""Rows of one split as they were published, file by file: no schema is assumed, no two rows need be alike.

What a row has not is absent, null, `""` or `[]`: the same rows reach us as published JSON, where a key is absent, and
through Arrow, which fills it with null.

JSON lines are read as `json.loads` reads them, integers and floats to the last digit; NaN, Infinity and numbers beyond
all floats, which are no JSON that others can read, make a row a reject.

Rows of Parquet become what JSON lines would have: a row is the same whichever of the two it was published as. Parquet
has one schema for all rows, so it has null where an object of a row has no such key. A null that JSON lines say
themselves can't be told from that, and goes with it; in lists nulls stay. Nor does it have each row's order of keys,
which is that of a tool's properties in a text.

| name | place of a row (`source_row`) | pieces |
|---|---|---|
| `.jsonl` `.ndjson` | bytes before its line in the uncompressed text | byte ranges; a compressed file is one |
| `.parquet` | number in the file, from 0 | runs of row groups |
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline_assets.corpus.nemotron.splits import detect_format
from pipeline_assets.corpus.readers.columns import Fault
from pipeline_assets.corpus.readers.lines import UNRELATED_TO_TRUNCATION, lines, read_row
from pipeline_assets.corpus.readers.local_parquet import RowGroupRun, parquet_rows, row_group_runs
from pipeline_assets.corpus.readers.source_folder import ByteRange, SourceFile, open_source, split_byte_ranges
from pipeline_assets.spine.errors import IN_RECIPE, InputError, key
from pipeline_assets.spine.ledger import Reject
from pipeline_assets.spine.stage import grouped_by_size

SourcePiece = ByteRange | RowGroupRun
SHARD_BYTES = 1 << 26
SAMPLE_PIECES = 16  # of a file: a sample is drawn over all of it, since the first rows of a file are often alike
_SAMPLE_PIECE_BYTES = 1 << 23
_BATCH_ROWS = 64  # rows of 2 MB are common
_SHOWN_BYTES = 80


@dataclass(frozen=True, slots=True)
class SourceRow:
    """One row: its file as the manifest names it, its place there, its columns."""

    file: str
    place: int
    columns: dict[str, Any]


@dataclass(frozen=True)
class RowShard:
    """Consecutive pieces of a split's files.

    Attributes:
        limits: by piece, how many of its first rows are read, beside those that pieces before it fell short of; None
            for all rows of all pieces.
        rows: unknown before they are read.
    """

    name: str
    pieces: tuple[SourcePiece, ...]
    limits: tuple[int, ...] | None
    rows: int = 0


def plan_shards(files: Sequence[SourceFile], shard_bytes: int) -> list[RowShard]:
    """All rows of the files, in order, in shards of about `shard_bytes`: the same for the same sizes and footers.

    Raises:
        InputError: a file isn't what its name says.
    """
    pieces = [piece for file in files for piece in _pieces(file, shard_bytes)]
    groups = grouped_by_size(pieces, lambda piece: piece.bytes, shard_bytes)
    return [RowShard(f"{number:05d}", tuple(group), None) for number, group in enumerate(groups)]


def plan_sample(files: Sequence[SourceFile], rows: int) -> list[RowShard]:
    """At most `rows` rows, as one shard: the first rows of each of some pieces, which lie evenly over every file.

    Pieces have at least 8 MiB of a file; a compressed one is one piece. Each gives the same number of rows, the first
    ones one more where it doesn't come out even. What a piece has not is taken from the next ones that have more: fewer
    rows than asked for come out only where the last pieces are short.

    Raises:
        InputError: a file isn't what its name says.
    """
    spread = (piece for file in files for piece in _spread(file))
    pieces = [piece for piece in spread if (piece.rows if isinstance(piece, RowGroupRun) else piece.bytes)]
    limits = [rows // len(pieces) + (number < rows % len(pieces)) for number in range(len(pieces))]
    return [RowShard("00000", tuple(pieces), tuple(limits))]


def empty_sample(max_rows: int, where: object) -> InputError:
    """What to say of a sample without a row; a full scan may find some."""
    what = f"a sample of {max_rows:,} at most met no row in its files"
    return InputError(what, where, f"leave out {key('max_rows', IN_RECIPE)} to read all rows, or leave the split out")


def read_shard(shard: RowShard) -> Iterator[SourceRow | Reject]:
    """Every row of the shard, in order, as many as its limits say.

    Raises:
        InputError: a file can't be read, or changed since it was planned.
    """
    if shard.limits is None:
        for piece in shard.pieces:
            yield from read_piece(piece)
        return
    missing = 0
    for piece, limit in zip(shard.pieces, shard.limits, strict=True):
        missing += limit
        for row in read_piece(piece, missing):
            missing -= 1
            yield row


def read_piece(piece: SourcePiece, limit: int | None = None) -> Iterator[SourceRow | Reject]:
    """Every row that begins in the piece, or why there is none in its line; blank lines are no rows.

    Reasons: `cut_off` (the last line of a file has no newline and can't be read), `not_json`, `wrong_type` (no object),
    `invalid_utf8`, `lone_surrogate`, `nested_too_deep`.

    Args:
        limit: how many rows are read; None for all.
    Raises:
        InputError: the file can't be read, or changed since it was planned.
    """
    rows = parquet_rows(piece, _BATCH_ROWS) if isinstance(piece, RowGroupRun) else _line_rows(lines(piece))
    name = piece.file.name
    for place, row in itertools.islice(rows, limit):
        yield Reject(name, place, row.reason, row.detail) if isinstance(row, Fault) else SourceRow(name, place, row)


def _line_rows(placed: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, dict[str, Any] | Fault]]:
    for place, line in placed:
        row = read_row(line)
        if isinstance(row, Fault):
            if is_blank(line):
                continue
            if not line.endswith(b"\n") and row.reason not in UNRELATED_TO_TRUNCATION:
                row = Fault("cut_off", f"{row.detail}, after {_shown(line)}")
        yield place, row


def is_blank(line: bytes) -> bool:
    """Whether a line is none of a row."""
    return not line.strip()


def _shown(line: bytes) -> str:
    """The end of a line, in one line."""
    return ascii(line[-_SHOWN_BYTES:].decode("utf-8", "replace"))


def _pieces(file: SourceFile, piece_bytes: int) -> Sequence[SourcePiece]:
    is_parquet = detect_format(file.name) == "parquet"
    if not is_parquet:
        with open_source(file) as opened:
            if opened.read(4) == b"PAR1":
                raise InputError("the file is Parquet", file.path, "rename it to end with .parquet")
        return split_byte_ranges(file, piece_bytes)
    return row_group_runs(file, None, piece_bytes)


def _spread(file: SourceFile) -> Sequence[SourcePiece]:
    """Pieces that lie evenly over a file."""
    pieces = _pieces(file, max(file.bytes // SAMPLE_PIECES + 1, _SAMPLE_PIECE_BYTES))
    step = -(-len(pieces) // SAMPLE_PIECES)
    return pieces[::step] if step else pieces
