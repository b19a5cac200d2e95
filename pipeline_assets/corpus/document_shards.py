"""Document shards of a corpus, read in blocks of lines."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, read_line_blocks
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.stage import WHOLE_SHARD, Window
from pipeline_assets.spine.staging import OutputFile

SHARDS = "shards"
REJECTS_FILE = f"rejects{SUFFIX}"


T = TypeVar("T")


@dataclass(frozen=True)
class DocumentShard:
    """Document shard: name, path in the corpus, file on disk, rows, hashes if sealed."""

    name: str
    path: str
    file: Path
    rows: int
    sealed: OutputFile | None = field(default=None, kw_only=True)


class Line(NamedTuple):
    """Row number of a line and its bytes without the line feed."""

    row: int
    line: bytes


class LineBlock(NamedTuple):
    """Consecutive lines, and the row numbers of the poison rows omitted from them."""

    lines: list[Line]
    poison_rows: list[int]


def read_lines(shard: DocumentShard, window: Window, block_bytes: int = 1 << 20) -> Iterator[LineBlock]:
    """Yield the lines in the window, in blocks of at least `block_bytes`.

    `block_bytes` counts uncompressed bytes; the last block may be smaller. If the file does not have `shard.rows`
    lines, InputError is raised after the last block.
    """
    for first, _, data in _numbered_blocks(shard, block_bytes):
        yield _split_lines(data, first, window)


def _numbered_blocks(shard: DocumentShard, block_bytes: int) -> Iterator[tuple[int, int, bytes]]:
    """Yield blocks of whole lines as (first row, number of rows, bytes)."""
    first = 0
    for data in read_line_blocks(shard.file, block_bytes):
        rows = data.count(b"\n") + (not data.endswith(b"\n"))
        yield first, rows, data
        first += rows
    if first != shard.rows:
        what = f"expected {shard.rows:,} rows, got {first:,}"
        raise InputError(what, shard.file, "verify the corpus, then rebuild it")


def _split_lines(data: bytes, first: int, window: Window) -> LineBlock:
    lines = data.removesuffix(b"\n").split(b"\n")
    inside = [Line(row, line) for row, line in window.enumerate_rows(lines, first)]
    poison_rows = [row for row, _ in inside if row in window.poison_rows]
    if poison_rows:
        inside = [line for line in inside if line.row not in window.poison_rows]
    return LineBlock(inside, poison_rows)


def decode_lines(lines: Sequence[Line], shard: DocumentShard, decoder: msgspec.json.Decoder[T]) -> list[T]:
    """Decode lines together, twice as fast as singly; InputError if a row is invalid."""
    documents = _try_decode(b"\n".join([line for _, line in lines]), len(lines), decoder)
    return documents if documents is not None else [_decode_line(line, shard, decoder) for line in lines]


def _try_decode(data: bytes, rows: int, decoder: msgspec.json.Decoder[T]) -> list[T] | None:
    """Decode lines together; return None if a line is invalid or blank."""
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
        documents = decoder.decode_lines(data)
        return documents if len(documents) == rows else None
    return None


def _decode_line(line: Line, shard: DocumentShard, decoder: msgspec.json.Decoder[T]) -> T:
    try:
        return decoder.decode(line.line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        what = f"row {line.row} is not a Document ({error})"
        raise InputError(what, shard.file, "verify the corpus, then rebuild it") from None


def read_documents(
    shard: DocumentShard, window: Window, decoder: msgspec.json.Decoder[T], block_bytes: int = 1 << 20
) -> Iterator[tuple[list[tuple[int, T]], list[int]]]:
    """Yield each block's (row, document) pairs and poison rows; InputError if damaged."""
    for first, rows, data in _numbered_blocks(shard, block_bytes):
        whole = _try_decode(data, rows, decoder) if window == WHOLE_SHARD else None
        if whole is not None:  # the usual case, in which no line is copied
            yield [*enumerate(whole, first)], []
            continue
        lines, poison_rows = _split_lines(data, first, window)
        documents = decode_lines(lines, shard, decoder)
        yield [(line.row, document) for line, document in zip(lines, documents, strict=True)], poison_rows


def poison_row_error(row: int, task: str, file: Path) -> InputError:
    """Return the error for a poison row; `task` is a participle, such as `counting`."""
    what = f"row {row} kills the worker while {task} it"
    return InputError(what, file, "use a machine with more memory, or remove the document from the corpus")
