"""Reader of source rows, file by file and without a schema.

JSON lines are read as `json.loads` reads them, with exact integers and floats. Rows with NaN, Infinity, a fraction
beyond the range of floats, a lone surrogate or deep nesting are rejects. Values of Parquet rows become those of JSON
lines (`parquet_values`).

| name | position of a row (`source_row`) | pieces |
|---|---|---|
| `.jsonl` `.ndjson` | bytes before its line in the uncompressed text | byte ranges; a compressed file is one piece |
| `.parquet` | number in the file, from 0 | runs of row groups |
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline_assets.corpus.nemotron.splits import detect_format
from pipeline_assets.corpus.readers.faults import Fault
from pipeline_assets.corpus.readers.json_lines import is_truncated, parse_row
from pipeline_assets.corpus.readers.lines import piece_lines
from pipeline_assets.corpus.readers.local_parquet import RowGroupRun, parquet_rows, row_group_runs
from pipeline_assets.corpus.readers.source_folder import ByteRange, SourceFile, open_source, split_byte_ranges
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.plural import pluralize
from pipeline_assets.spine.rejects import Reject
from pipeline_assets.spine.stage import group_by_size, number_shards

SourcePiece = ByteRange | RowGroupRun
SCAN_SHARD_BYTES = 1 << 26
MAX_SAMPLE_PIECES = 16  # pieces per file: a sample covers the whole file, since its first rows are often alike
_SAMPLE_PIECE_BYTES = 1 << 23
_BATCH_ROWS = 64  # rows of 2 MB are common
_MAX_SHOWN_BYTES = 80


@dataclass(frozen=True, slots=True)
class SourceRow:
    """Source row, with its file's name in the manifest and its position in the file."""

    file: str
    position: int
    columns: dict[str, Any]


@dataclass(frozen=True)
class RowShard:
    """Numbered shard of source rows; its pieces are in the order of the split's files.

    `row_limits` are the maximum numbers of rows to read from the start of each piece; None for all rows. If a piece has
    fewer rows, the difference is added to the limit of the next piece.
    """

    name: str
    pieces: tuple[SourcePiece, ...]
    row_limits: tuple[int, ...] | None
    rows: int = 0  # unknown before they are read


def plan_shards(files: Sequence[SourceFile], shard_bytes: int, max_rows: int | None = None) -> list[RowShard]:
    """Plan shards of about `shard_bytes`, in file order, or a sample of `max_rows`.

    Raise InputError for a damaged file, and for a Parquet file that has a suffix of JSON lines.
    """
    if max_rows is not None:
        return plan_sample(files, max_rows)
    pieces = [piece for file in files for piece in _split_file(file, shard_bytes)]
    groups = group_by_size(pieces, lambda piece: piece.bytes, shard_bytes)
    return [RowShard(name, tuple(group), None) for name, group in number_shards(groups)]


def plan_sample(files: Sequence[SourceFile], max_rows: int) -> list[RowShard]:
    """Plan one shard with at most `max_rows` rows, spread evenly over the files.

    Up to 16 pieces of each file are sampled. A compressed file is one piece. Each piece supplies about the same number
    of rows, from its start; if `max_rows` is smaller than the number of pieces, the first ones supply a row each. If a
    piece is too short, later pieces supply the missing rows. Raise InputError as `plan_shards` does.
    """
    spread = (piece for file in files for piece in _sample_pieces(file))
    pieces = [piece for piece in spread if (piece.rows if isinstance(piece, RowGroupRun) else piece.bytes)]
    limits = [max_rows // len(pieces) + (number < max_rows % len(pieces)) for number in range(len(pieces))]
    return [RowShard("00000", tuple(pieces), tuple(limits))]


def empty_sample_error(max_rows: int, where: object) -> InputError:
    """Return the error for an empty sample, with the advice to read all rows."""
    what = f"a sample of at most {pluralize(max_rows, 'row')} is empty"
    return InputError(what, where, "omit `max_rows` in the recipe to read all rows, or omit the split")


def read_shard(shard: RowShard) -> Iterator[SourceRow | Reject]:
    """Yield a shard's rows in order, up to its limits.

    An unreadable row is yielded as a reject, and counts as a row.
    """
    if shard.row_limits is None:
        for piece in shard.pieces:
            yield from read_piece(piece)
        return
    missing = 0
    for piece, limit in zip(shard.pieces, shard.row_limits, strict=True):
        missing += limit
        for row in read_piece(piece, missing):
            missing -= 1
            yield row


def read_piece(piece: SourcePiece, limit: int | None = None) -> Iterator[SourceRow | Reject]:
    """Yield the rows that begin in the piece; unreadable rows as rejects.

    `limit` is the maximum number of rows and rejects together; None reads all. Blank lines are skipped. Reasons of
    rejects: `cut_off` (the last line of a file has no newline and cannot be read), `not_json`, `wrong_type` (not an
    object), `invalid_utf8`, `lone_surrogate`, `unreadable_value`, `nested_too_deep`. Raise `InputError` if the size of
    the file changed after the piece was planned.
    """
    rows = parquet_rows(piece, _BATCH_ROWS) if isinstance(piece, RowGroupRun) else _read_lines(piece_lines(piece))
    file = piece.file.name
    for position, row in itertools.islice(rows, limit):
        yield row.to_reject(file, position) if isinstance(row, Fault) else SourceRow(file, position, row)


def _read_lines(positioned_lines: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, dict[str, Any] | Fault]]:
    for position, line in positioned_lines:
        row = parse_row(line)
        if isinstance(row, Fault):
            if not line.strip():
                continue
            if is_truncated(line, row):
                end = ascii(line[-_MAX_SHOWN_BYTES:].decode("utf-8", "replace"))
                row = Fault("cut_off", f"{row.detail}, after {end}")
        yield position, row


def _split_file(file: SourceFile, piece_bytes: int) -> Sequence[SourcePiece]:
    if detect_format(file.name) == "parquet":
        return row_group_runs(file, None, piece_bytes)
    with open_source(file) as opened:
        if opened.read(4) == b"PAR1":
            raise InputError("the file is Parquet", file.path, "rename it to end with .parquet")
    return split_byte_ranges(file, piece_bytes)


def _sample_pieces(file: SourceFile) -> Sequence[SourcePiece]:
    pieces = _split_file(file, max(file.bytes // MAX_SAMPLE_PIECES + 1, _SAMPLE_PIECE_BYTES))
    step = -(-len(pieces) // MAX_SAMPLE_PIECES)  # rounded up, so that at most MAX_SAMPLE_PIECES remain
    return pieces[::step] if step else pieces
