"""Lines of Document shards, read in blocks without the poison rows."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from pipeline_assets.corpus.document_shards import DocumentShard, decode_line, numbered_blocks, try_decode
from pipeline_assets.spine.stage import Window

T = TypeVar("T")


class Line(NamedTuple):
    """Row number of a line, and the line's bytes without the line feed."""

    row: int
    content: bytes


class LineBlock(NamedTuple):
    """Consecutive lines, and the row numbers of the poison rows omitted from them."""

    lines: list[Line]
    poison_rows: list[int]


def read_lines(shard: DocumentShard, window: Window, block_bytes: int = 1 << 20) -> Iterator[LineBlock]:
    """Yield the lines in a window, block by block; a block may have no lines.

    A block of the shard has at least `block_bytes` uncompressed bytes, except the last one. If the file does not have
    `shard.rows` lines, InputError is raised after the last block.
    """
    for first, _, data in numbered_blocks(shard, block_bytes):
        lines = data.removesuffix(b"\n").split(b"\n")
        inside = [Line(row, line) for row, line in window.enumerate_rows(lines, first)]
        poison_rows = [row for row, _ in inside if row in window.poison_rows]
        if poison_rows:
            inside = [line for line in inside if line.row not in window.poison_rows]
        yield LineBlock(inside, poison_rows)


def decode_lines(lines: Sequence[Line], shard: DocumentShard, decoder: msgspec.json.Decoder[T]) -> list[T]:
    """Decode lines; raise InputError with the row number if a line is invalid."""
    documents = try_decode(b"\n".join([line for _, line in lines]), len(lines), decoder)
    return documents if documents is not None else [decode_line(*line, shard, decoder) for line in lines]
