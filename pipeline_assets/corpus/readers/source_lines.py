"""Lines of a source file, compressed or not, with the place where each begins.

A place is the number of bytes before it in the uncompressed text. It names a line exactly in a file that was never read
from its start, stays when the file is compressed, and leads back to it: `tail -c +$((PLACE + 1)) FILE | head -1`.
"""

import io
import os
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from pipeline_assets.corpus.formats.compression import codec_of, decompressed
from pipeline_assets.corpus.formats.jsonl_zst import whole_lines
from pipeline_assets.corpus.readers.source_files import HEAD_BYTES, ByteRange, SourceFile, open_source
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.reads import hashed

MAX_LINE_BYTES = 1 << 28
_NO_LINES = "it is no file of lines: convert it, or leave it out"
_BLOCK_BYTES = 1 << 20
_MOST_COUNTED_BYTES = 1 << 32
_UTF8_MARK = b"\xef\xbb\xbf"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


def line_blocks(file: SourceFile, start: int = 0) -> Iterator[tuple[int, bytes]]:
    """(place, bytes) in blocks of whole lines, from the first line that begins at `start` or after it to the end.

    A byte order mark of UTF-8 is passed over.

    Args:
        start: 0 for a compressed file.
    Raises:
        InputError: the file can't be read, is cut off or damaged, is UTF-16, or has a line longer than 256 MiB.
    """
    with open_source(file) as opened:
        first = _seek_line(opened, start)
        for place, block in placed_lines(_blocks(opened, file), first, file.path):
            if place == 0 and block.startswith(_UTF16_MARKS):
                raise InputError("it is UTF-16", file.path, "convert it: iconv -f UTF-16 -t UTF-8")
            yield place, block


def placed_lines(blocks: Iterable[bytes], place: int, where: object) -> Iterator[tuple[int, bytes]]:
    """(place, bytes) in blocks of whole lines, without a byte order mark of UTF-8 at the start of the file.

    Args:
        blocks: of a file, one after the other.
        place: where the first one begins.
    Raises:
        InputError: a line is longer than 256 MiB.
    """
    for block in whole_lines(blocks, where, _NO_LINES, MAX_LINE_BYTES):
        skipped = len(_UTF8_MARK) if place == 0 and block.startswith(_UTF8_MARK) else 0
        yield place + skipped, block[skipped:]
        place += len(block)


def lines(piece: ByteRange) -> Iterator[tuple[int, bytes]]:
    """(place, line with its newline) of the lines that begin in the range.

    Raises:
        InputError: as `line_blocks` does.
    """
    return lines_of(line_blocks(piece.file, piece.start), piece.stop)


def lines_of(blocks: Iterable[tuple[int, bytes]], stop: int | None) -> Iterator[tuple[int, bytes]]:
    """(place, line with its newline) of the lines of some blocks that begin before `stop`, or all."""
    for place, block in blocks:
        for line in io.BytesIO(block):
            if stop is not None and place >= stop:
                return
            yield place, line
            place += len(line)


def line_number(file: SourceFile, place: int) -> int | None:
    """Number of the line at a place, from 1: all before it is read. None where that is more than 4 GiB, or the file has
    holes, as one of which only a sample was fetched.

    Raises:
        InputError: the file can't be read.
    """
    lines, at = 1, 0
    with open_source(file) as opened:
        if place > _MOST_COUNTED_BYTES or opened.seek(0, os.SEEK_HOLE) < min(place, file.bytes):
            return None
        opened.seek(0)
        for block in _blocks(opened, file):
            lines += block.count(b"\n", 0, max(place - at, 0))
            at += len(block)
            if at >= place:
                break
    return lines


def line_before(file: SourceFile, place: int) -> bytes:
    """The line that ends where a line begins, with its newline; at the start of the file nothing. Not of compressed
    files.
    """
    found = b""
    with open_source(file) as opened:
        while place > 0 and b"\n" not in found[:-1]:
            step = min(place, max(_BLOCK_BYTES >> 4, len(found)))
            place -= step
            opened.seek(place)
            found = opened.read(step) + found
    if place == 0:
        found = found.removeprefix(_UTF8_MARK)
    return found[found[:-1].rfind(b"\n") + 1 :]


def _seek_line(opened: BinaryIO, start: int) -> int:
    """Moves to the first line that begins at `start` or after it; its place."""
    if start == 0:
        return 0
    place = opened.seek(start - 1)
    while block := opened.read(_BLOCK_BYTES >> 4):
        end = block.find(b"\n") + 1
        if end:
            return opened.seek(place + end)
        place += len(block)
    return place


def _blocks(opened: BinaryIO, file: SourceFile) -> Iterator[bytes]:
    place = opened.tell()
    codec = codec_of(opened.read(HEAD_BYTES)) if place == 0 else None
    opened.seek(place)
    source = hashed(opened, file.path) if place == 0 else opened
    if codec is not None:
        yield from decompressed(source, codec, file.path, "fetch or write the file again", _BLOCK_BYTES)
    else:
        while block := source.read(_BLOCK_BYTES):
            yield block
