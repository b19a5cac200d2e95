"""Lines of a source file, compressed or not, with their byte offsets.

An offset is the number of bytes before a line in the uncompressed text. Reading may begin at any offset of an
uncompressed file. To print the line at OFFSET of such a file: `tail -c +$((OFFSET + 1)) FILE | head -1`.
"""

import io
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from pipeline_assets.corpus.formats.codecs import detect_codec, read_decompressed
from pipeline_assets.corpus.formats.compression import align_to_lines
from pipeline_assets.corpus.readers.source_folder import HEAD_BYTES, ByteRange, SourceFile, open_source
from pipeline_assets.corpus.readers.source_formats import strip_compression_suffix
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.verified_reads import hash_while_reading

MAX_LINE_BYTES = 1 << 28
_BLOCK_BYTES = 1 << 20
_FIX = "fetch or write the file again"
UTF8_MARK = b"\xef\xbb\xbf"
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


def line_blocks(file: SourceFile, start: int = 0) -> Iterator[tuple[int, bytes]]:
    """Yield the byte offset and the bytes of each block of whole lines of a file.

    The blocks begin with the first line that starts at or after byte `start`; for a compressed file, `start` must be 0.
    Raise InputError if the file is damaged, is UTF-16 or has a line longer than 256 MiB.
    """
    with open_source(file) as opened:
        first = _seek_line(opened, start)
        yield from regroup_by_lines(read_blocks(opened, file), first, file.path)


def regroup_by_lines(blocks: Iterable[bytes], offset: int, where: object) -> Iterator[tuple[int, bytes]]:
    """Regroup a file's blocks into whole lines; yield each new block with its offset.

    The first block begins at byte `offset` of the file. A UTF-8 byte order mark is skipped; UTF-16 raises InputError.
    """
    for block in align_to_lines(blocks, where, "convert the file to lines of text, or exclude it", MAX_LINE_BYTES):
        if offset == 0 and block.startswith(UTF16_MARKS):
            raise InputError("the file is UTF-16", where, "convert it: iconv -f UTF-16 -t UTF-8")
        skipped = len(UTF8_MARK) if offset == 0 and block.startswith(UTF8_MARK) else 0
        yield offset + skipped, block[skipped:]
        offset += len(block)


def piece_lines(piece: ByteRange) -> Iterator[tuple[int, bytes]]:
    """Yield the offset and bytes (with newline) of each line that begins in a range."""
    return split_lines(line_blocks(piece.file, piece.start), piece.stop)


def split_lines(blocks: Iterable[tuple[int, bytes]], stop: int | None) -> Iterator[tuple[int, bytes]]:
    """Yield offset and bytes (with newline) of each line that begins before `stop`."""
    for offset, block in blocks:
        for line in io.BytesIO(block):
            if stop is not None and offset >= stop:
                return
            yield offset, line
            offset += len(line)


def line_before(file: SourceFile, offset: int) -> bytes:
    """Return the line that ends at an offset of an uncompressed file; b"" at offset 0."""
    line = b""
    with open_source(file) as opened:
        while offset > 0 and b"\n" not in line[:-1]:
            step = min(offset, max(_BLOCK_BYTES >> 4, len(line)))  # doubling keeps the copies of a long line linear
            offset -= step
            opened.seek(offset)
            line = opened.read(step) + line
    if offset == 0:
        line = line.removeprefix(UTF8_MARK)
    return line[line[:-1].rfind(b"\n") + 1 :]


def _seek_line(stream: BinaryIO, start: int) -> int:
    """Seek to the first line that begins at or after `start`; return the offset.

    If no such line exists, return the file's end. If `start` is within or just after a byte order mark, return 0.
    """
    if start == 0 or (start <= len(UTF8_MARK) and stream.read(len(UTF8_MARK)) == UTF8_MARK):
        return stream.seek(0)
    offset = stream.seek(start - 1)
    while block := stream.read(_BLOCK_BYTES >> 4):
        end = block.find(b"\n") + 1
        if end:
            return stream.seek(offset + end)
        offset += len(block)
    return offset


def read_blocks(stream: BinaryIO, file: SourceFile) -> Iterator[bytes]:
    """Yield the rest of an open file in decompressed blocks.

    At byte 0, the compression is detected and the bytes are hashed. At any other byte, plain bytes are read unhashed.
    Raise InputError for a file without bytes whose name has the suffix of a compression: it is not a compressed file.
    """
    if file.bytes == 0 and strip_compression_suffix(file.name) != file.name:
        raise InputError("the compressed file has 0 bytes", file.path, _FIX)
    offset = stream.tell()
    codec = detect_codec(stream.read(HEAD_BYTES)) if offset == 0 else None
    stream.seek(offset)
    source = hash_while_reading(stream, file.path) if offset == 0 else stream
    return read_decompressed(source, codec, file.path, _FIX, _BLOCK_BYTES)
