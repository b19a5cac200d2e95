"""Document shards of a corpus, read in blocks of lines."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, read_line_blocks
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.stage import Window

SHARDS = "shards"
REJECTS_FILE = f"rejects{SUFFIX}"


T = TypeVar("T")


@dataclass(frozen=True)
class DocumentShard:
    """One Document shard: `name` of what is made of it, `path` in the corpus, `file` on disk, its rows."""

    name: str
    path: str
    file: Path
    rows: int


class Line(NamedTuple):
    """A line of a shard: its row, and its bytes without the line feed."""

    row: int
    line: bytes


class Block(NamedTuple):
    """Lines of a shard that follow one another, but `fatal`, the rows among them that kill their worker."""

    lines: list[Line]
    fatal: list[int]


def read_lines(shard: DocumentShard, window: Window, block_bytes: int = 1 << 20) -> Iterator[Block]:
    """The lines in the window, in blocks of at least so many bytes.

    Raises:
        InputError: the file is damaged, or has other rows than its manifest says.
    """
    first = 0
    for data in read_line_blocks(shard.file, block_bytes):
        lines = data.removesuffix(b"\n").split(b"\n")
        inside = [Line(row, line) for row, line in window.enumerate_rows(lines, first)]
        fatal = [row for row, _ in inside if row in window.poison_rows]
        yield Block([one for one in inside if one.row not in window.poison_rows] if fatal else inside, fatal)
        first += len(lines)
    if first != shard.rows:
        what = f"it has {first:,} rows, its manifest says {shard.rows:,}"
        raise InputError(what, shard.file, "verify the corpus, then rebuild it")


def decode(lines: Sequence[Line], shard: DocumentShard, decoder: msgspec.json.Decoder[T]) -> list[T]:
    """The documents in lines, decoded at once, which takes half as long as one by one.

    Raises:
        InputError: a line is no Document (says which).
    """
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):  # found again below, with its row
        documents = decoder.decode_lines(b"\n".join([line for _, line in lines]))
        if len(documents) == len(lines):
            return documents
    return [_decode_line(one, shard, decoder) for one in lines]


def _decode_line(line: Line, shard: DocumentShard, decoder: msgspec.json.Decoder[T]) -> T:
    try:
        return decoder.decode(line.line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        what = f"row {line.row} is no Document ({error})"
        raise InputError(what, shard.file, "verify the corpus, then rebuild it") from None


def read_documents(
    shard: DocumentShard, window: Window, decoder: msgspec.json.Decoder[T], block_bytes: int = 1 << 20
) -> Iterator[tuple[list[tuple[int, T]], list[int]]]:
    """As `read_lines`, documents with their rows. Raises as `decode` too."""
    for lines, fatal in read_lines(shard, window, block_bytes):
        documents = decode(lines, shard, decoder)
        yield [(line.row, document) for line, document in zip(lines, documents, strict=True)], fatal


def shard_rows(corpus: Artifact) -> dict[str, int]:
    """Documents by shard, in manifest order."""
    return {file.path: file.rows for file in corpus.manifest.identity.files if file.path.startswith(f"{SHARDS}/")}


def document_shards(corpus: Artifact) -> list[DocumentShard]:
    """The shards of a corpus, in manifest order."""
    return [
        DocumentShard(path.removeprefix(f"{SHARDS}/").removesuffix(SUFFIX), path, corpus.path(path), rows)
        for path, rows in shard_rows(corpus).items()
    ]


def fatal_row(row: int, does: str, file: Path) -> InputError:
    """For a stage without rejects: from its result a document that kills its worker would be missing."""
    what = f"row {row} kills the process that {does} it"
    return InputError(what, file, "give it more memory, or leave the document out of the corpus")
