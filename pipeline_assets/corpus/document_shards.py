"""Document shards of a corpus, decoded in blocks."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import msgspec

from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, read_line_blocks
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.plural import pluralize
from pipeline_assets.spine.stage import WHOLE_SHARD, Window
from pipeline_assets.spine.staging import OutputFile

SHARDS_FOLDER = "shards"
REJECTS_FILE = f"rejects{SUFFIX}"
T = TypeVar("T")
_FIX = "verify the corpus, then rebuild it"


@dataclass(frozen=True)
class DocumentShard:
    """Shard of documents: name, path in the corpus, file on disk and number of rows.

    `sealed_file` has the size and hashes in the manifest; None if the shard is not sealed.
    """

    name: str
    path: str
    file: Path
    rows: int
    sealed_file: OutputFile | None = field(default=None, kw_only=True)


def read_documents(
    shard: DocumentShard, window: Window, decoder: msgspec.json.Decoder[T], block_bytes: int = 1 << 20
) -> Iterator[tuple[list[tuple[int, T]], list[int]]]:
    """Yield each block's (row, document) pairs and poison rows; InputError on damage."""
    for first, rows, data in numbered_blocks(shard, block_bytes):
        whole = try_decode(data, rows, decoder) if window == WHOLE_SHARD else None
        if whole is not None:  # the usual case, in which no line is copied
            yield [*enumerate(whole, first)], []
            continue
        lines = list(window.enumerate_rows(data.removesuffix(b"\n").split(b"\n"), first))
        kept = [(row, decode_line(row, line, shard, decoder)) for row, line in lines if row not in window.poison_rows]
        yield kept, [row for row, _ in lines if row in window.poison_rows]


def numbered_blocks(shard: DocumentShard, block_bytes: int) -> Iterator[tuple[int, int, bytes]]:
    """Yield blocks of whole lines as (first row, number of rows, bytes).

    If the file does not have `shard.rows` lines, InputError is raised after the last block.
    """
    first = 0
    for data in read_line_blocks(shard.file, block_bytes):
        rows = data.count(b"\n") + (not data.endswith(b"\n"))
        yield first, rows, data
        first += rows
    if first != shard.rows:
        raise InputError(f"expected {pluralize(shard.rows, 'row')}, got {first:,}", shard.file, _FIX)


def try_decode(block: bytes, rows: int, decoder: msgspec.json.Decoder[T]) -> list[T] | None:
    """Decode lines together; return None if a line is invalid or blank."""
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
        documents = decoder.decode_lines(block)
        return documents if len(documents) == rows else None
    return None


def decode_line(row: int, line: bytes, shard: DocumentShard, decoder: msgspec.json.Decoder[T]) -> T:
    """Decode one line of a shard; raise InputError with `row` if it is invalid."""
    try:
        return decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"row {row} is not a Document ({error})", shard.file, _FIX) from None


def poison_row_error(row: int, activity: str, file: Path) -> InputError:
    """Return the error for a poison row; `activity` is a participle like `counting`."""
    what = f"row {row} kills the worker while {activity} it"
    return InputError(what, file, "use a machine with more memory, or remove the document from the corpus")
