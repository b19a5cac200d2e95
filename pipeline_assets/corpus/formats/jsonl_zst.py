"""JSON lines in zstd, written with hashes and read in blocks of whole lines."""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
import zstandard

from pipeline_assets.corpus.formats.compression import ZSTD, align_to_lines, decompress
from pipeline_assets.spine.damage import errors_as_damage
from pipeline_assets.spine.durable import DurableFile
from pipeline_assets.spine.staging import OutputFile
from pipeline_assets.spine.typed_values import json_decoder
from pipeline_assets.spine.verified_reads import hash_while_reading

SUFFIX = ".jsonl.zst"
T = TypeVar("T")
_encoder = msgspec.json.Encoder()
_FIX = "restore the file or rebuild the artifact"


class JsonlZstWriter(DurableFile):
    """Writer of one `.jsonl.zst` file, which is durable after its `with` block.

    The content hash is the sha256 of the uncompressed bytes, so zstd's version and level do not change it.
    """

    def __init__(self, path: Path, zstd_level: int) -> None:
        super().__init__(path)
        self._stream = zstandard.ZstdCompressor(level=zstd_level, write_checksum=True).compressobj()
        self._content = hashlib.sha256()
        self.rows = 0
        self.content_bytes = 0

    def write_lines(self, lines: bytes | bytearray, row_count: int) -> None:
        """Write `row_count` whole lines, each with its line feed."""
        self._content.update(lines)
        self.content_bytes += len(lines)
        self.rows += row_count
        if compressed := self._stream.compress(lines):
            self.write(compressed)

    def write_rows(self, rows: Sequence[object]) -> None:
        """Write rows, each as the JSON line that msgspec encodes."""
        self.write_lines(_encoder.encode_lines(rows), len(rows))

    def finish(self) -> None:
        self.write(self._stream.flush())

    def output(self, name: str) -> OutputFile:
        """Describe the finished file; `name` is the file's path in the staging directory."""
        return OutputFile(name, self.rows, self.bytes_written, self.sha256, self._content.hexdigest())


def write_rows(path: Path, name: str, rows: Sequence[object], zstd_level: int) -> OutputFile:
    """Write a few rows, in order, to a `.jsonl.zst` file; msgspec encodes the rows."""
    with JsonlZstWriter(path, zstd_level) as writer:
        writer.write_rows(rows)
    return writer.output(name)


def read_line_blocks(path: Path, block_bytes: int = 1 << 20) -> Iterator[bytes]:
    """Yield a file's uncompressed bytes in blocks of whole lines (`align_to_lines`).

    Raise InputError for a truncated, damaged or empty file: even a file without lines has a zstd frame.
    """
    with open(path, "rb", buffering=0) as file:
        blocks = decompress(hash_while_reading(file, path), ZSTD, path, _FIX)
        yield from align_to_lines(blocks, path, block_bytes=block_bytes)


def read_structs(path: Path, row_type: type[T]) -> Iterator[T]:
    """Decode each line as a `row_type`; raise InputError for an invalid line."""
    decoder = json_decoder(row_type)
    for block in read_line_blocks(path):
        with errors_as_damage(path, "file of rows"):
            rows = decoder.decode_lines(block)
        yield from rows
