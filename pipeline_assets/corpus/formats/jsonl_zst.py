"""JSON lines in zstd, written whole with both hashes, read in blocks of whole lines."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec
import zstandard

from pipeline_assets.corpus.formats.compression import ZSTD, decompressed, whole_lines
from pipeline_assets.spine.durable import DurableFile
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.staging import OutputFile
from pipeline_assets.spine.verified_reads import hash_while_reading

SUFFIX = ".jsonl.zst"
_BLOCK_BYTES = 1 << 20
T = TypeVar("T")
_FIX = "restore the file or rebuild the artifact"


class JsonlZstWriter(DurableFile):
    """Lines into one `.jsonl.zst`; the file is there, durable, when the block ends without error.

    The content hash is sha256 of the uncompressed bytes, so it survives another zstd version or level.
    """

    def __init__(self, path: Path, level: int) -> None:
        super().__init__(path)
        self._stream = zstandard.ZstdCompressor(level=level, write_checksum=True).compressobj()
        self._content = hashlib.sha256()
        self.rows = 0
        self.content_bytes = 0

    def write_lines(self, lines: bytes | bytearray, rows: int) -> None:
        """`rows` whole lines, each with its newline."""
        self._content.update(lines)
        self.content_bytes += len(lines)
        self.rows += rows
        compressed = self._stream.compress(lines)
        if compressed:
            self.write(compressed)

    def finish(self) -> None:
        self.write(self._stream.flush())

    def output(self, name: str) -> OutputFile:
        """The finished file under its name in the building folder."""
        return OutputFile(name, self.rows, self.bytes_written, self.sha256, self._content.hexdigest())


def write_rows(path: Path, name: str, rows: list[dict[str, object]], level: int) -> OutputFile:
    """Write a few rows as `.jsonl.zst`, in input order."""
    with JsonlZstWriter(path, level) as writer:
        writer.write_lines(b"".join(msgspec.json.encode(row) + b"\n" for row in rows), len(rows))
    return writer.output(name)


def read_line_blocks(path: Path, block_bytes: int = _BLOCK_BYTES) -> Iterator[bytes]:
    """Uncompressed bytes in blocks of at least `block_bytes` that end at a line's end; no lines give no block.

    Raises:
        InputError: the file is cut off or damaged. Blocks may have been yielded before that shows (a frame's checksum
            comes last): keep nothing that was made of them. A file of 0 bytes is cut off, since a zstd file of no lines
            has a frame too.
    """
    with open(path, "rb", buffering=0) as file:
        yield from whole_lines(
            decompressed(hash_while_reading(file, path), ZSTD, path, _FIX, 1), path, block_bytes=block_bytes
        )


def read_structs(path: Path, kind: type[T]) -> Iterator[T]:
    """What each line says, in order; a block of them is in memory at a time.

    Raises:
        InputError: as `read_line_blocks`.
        msgspec.DecodeError: a line is not of this kind.
    """
    decoder = msgspec.json.Decoder(kind)
    for block in read_line_blocks(path):
        yield from decoder.decode_lines(block)


def read_line(path: Path, row: int, struct: type[T]) -> T:
    """The record in a line of a file, from 0. Raises InputError where the file is shorter, or the line is none."""
    first_row = 0
    for block in read_line_blocks(path):
        rows = block.count(b"\n")
        if row < first_row + rows:
            try:
                return msgspec.json.decode(block.split(b"\n", row - first_row + 1)[row - first_row], type=struct)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                what = f"row {row} is no {struct.__name__} ({error})"
                raise InputError(what, path, "run `corpusmill verify` on its folder") from None
        first_row += rows
    raise InputError(f"it has {first_row:,} rows, none is row {row:,}", path, "run `corpusmill verify` on its folder")
