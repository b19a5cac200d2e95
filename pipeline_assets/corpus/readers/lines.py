"""Lines of a source file, compressed or not, with the place where each begins; JSON lines as rows; a row told in words.

A place is the number of bytes before it in the uncompressed text. It names a line exactly in a file that was never read
from its start, stays when the file is compressed, and leads back to it: `tail -c +$((PLACE + 1)) FILE | head -1`.
"""

import io
import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from pipeline_assets.corpus.formats.compression import decompressed, detect_codec, whole_lines
from pipeline_assets.corpus.readers.columns import MAX_NESTING, NESTED_TOO_DEEP, Fault, is_nested_within, utf8_fault
from pipeline_assets.corpus.readers.source_folder import HEAD_BYTES, ByteRange, SourceFile, open_source
from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.spine.files import hash_while_reading
from pipeline_assets.spine.ledger import Reject, RejectFormatter

MAX_LINE_BYTES = 1 << 28
_NO_LINES = "it is no file of lines: convert it, or leave it out"
_BLOCK_BYTES = 1 << 20
_MOST_COUNTED_BYTES = 1 << 32
_UTF8_MARK = b"\xef\xbb\xbf"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_NUMBERED = (".parquet", ".xml", ".7z")  # their rows have numbers; all else is lines, or records of lines
# Faults of a last line that say nothing of whether the file was cut off there.
NOT_FROM_A_CUT = frozenset({"wrong_type", NESTED_TOO_DEEP.reason})
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*(?:"|\Z)', re.DOTALL)
_NO_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
_decode = msgspec.json.Decoder().decode


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
        yield from lines_with_offsets(_blocks(opened, file), first, file.path)


def lines_with_offsets(blocks: Iterable[bytes], place: int, where: object) -> Iterator[tuple[int, bytes]]:
    """(place, bytes) in blocks of whole lines, without a byte order mark of UTF-8 at the start of the file.

    Args:
        blocks: of a file, one after the other.
        place: where the first one begins.
    Raises:
        InputError: a line is longer than 256 MiB, or the file is UTF-16.
    """
    for block in whole_lines(blocks, where, _NO_LINES, MAX_LINE_BYTES):
        if place == 0 and block.startswith(_UTF16_MARKS):
            raise InputError("it is UTF-16", where, "convert it: iconv -f UTF-16 -t UTF-8")
        skipped = len(_UTF8_MARK) if place == 0 and block.startswith(_UTF8_MARK) else 0
        yield place + skipped, block[skipped:]
        place += len(block)


def lines(piece: ByteRange) -> Iterator[tuple[int, bytes]]:
    """(place, line with its newline) of the lines that begin in the range."""
    return read_lines(line_blocks(piece.file, piece.start), piece.stop)


def read_lines(blocks: Iterable[tuple[int, bytes]], stop: int | None) -> Iterator[tuple[int, bytes]]:
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
        counted = min(place, file.bytes)  # of no bytes nothing is asked: an empty file has no hole at all
        if place > _MOST_COUNTED_BYTES or (counted and opened.seek(0, os.SEEK_HOLE) < counted):
            return None
        opened.seek(0)
        for block in _blocks(opened, file):
            lines += block.count(b"\n", 0, max(place - at, 0))
            at += len(block)
            if at >= place:
                break
    return lines


def place_of_line(file: SourceFile, line: int) -> int:
    """Where a line begins, by its number, from 1: what `line_number` tells backwards.

    Raises:
        InputError: the file can't be read.
        UsageError: its rows have numbers, or it has fewer lines.
    """
    if file.name.lower().endswith(_NUMBERED):
        raise UsageError("its rows have numbers, no lines", file.path, "write path#row, rows from 0")
    place, left = 0, line - 1
    with open_source(file) as opened:
        for block in _blocks(opened, file):
            newlines = block.count(b"\n")
            if left < newlines or (left == newlines and not block.endswith(b"\n")):
                return place + sum(map(len, block.split(b"\n")[:left])) + left
            left -= newlines
            place += len(block)
    raise UsageError(f"it has {line - 1 - left:,} lines, none is line {line:,}", file.path, "give one that it has")


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
    codec = detect_codec(opened.read(HEAD_BYTES)) if place == 0 else None
    opened.seek(place)
    source = hash_while_reading(opened, file.path) if place == 0 else opened
    return decompressed(source, codec, file.path, "fetch or write the file again", _BLOCK_BYTES)


def format_row(name: str, row: int, file: SourceFile | None) -> str:
    """`line 12 (byte 3,456)`, `byte 3,456` where the line can't be counted, `row 12` of what has no lines.

    Args:
        name: of the file, which tells what it is.
        row: its `source_row`.
        file: None if it isn't here.
    """
    if name.lower().endswith(_NUMBERED):
        return f"row {row:,}"
    try:
        line = None if file is None else line_number(file, row)
    except InputError:
        line = None
    return f"byte {row:,}" if line is None else f"line {line:,} (byte {row:,})"


def reject_formatter(files: Iterable[SourceFile]) -> RejectFormatter:
    """How people are told of a reject of one of these files."""
    by_name = {file.name: file for file in files}
    return lambda reject: reject.describe(format_row(reject.file, reject.row, by_name.get(reject.file)))


def numbered_words(reject: Reject) -> str:
    """How people are told of a reject of a file whose rows have numbers."""
    return reject.describe(f"row {reject.row:,}")


def file_at(path: Path) -> SourceFile | None:
    """The file, if it is there."""
    return SourceFile(path, path.name, path.stat().st_size) if path.is_file() else None


def json_rows(piece: ByteRange, lines: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, dict[str, Any] | Fault]]:
    """(place, row or fault) of every line of a range; blank lines are no rows.

    A row's place is that of its line. NaN and Infinity are not JSON; of a key that is there twice
    the last value counts.

    Raises:
        InputError: the file is cut off or ends with NUL bytes (its last line has no newline and can't be read), or is
            one JSON value over many lines.
    """
    is_first = piece.start == 0
    for place, line in lines:
        row = read_row(line)
        if not isinstance(row, dict):
            if not line.strip():
                continue
            if is_first:
                raise_if_document(line, piece.file.path)
            if not line.endswith(b"\n") and row.reason not in NOT_FROM_A_CUT:
                raise _truncated_line_error(piece, place, line, row)
        is_first = False
        yield place, row


def read_row(line: bytes) -> dict[str, Any] | Fault:
    """The object in a line, or why there is none: `not_json`, `wrong_type`, `invalid_utf8`, `lone_surrogate`,
    `nested_too_deep` (see `MAX_NESTING`; the row itself is no level).
    """
    try:
        row = _decode(line)
    except RecursionError:
        return NESTED_TOO_DEEP
    except (UnicodeDecodeError, msgspec.DecodeError) as error:
        if _is_nested_too_deep(line):
            return NESTED_TOO_DEEP
        if isinstance(error, UnicodeDecodeError):
            return utf8_fault(error)
        return _has_lone_surrogate(line) or Fault("not_json", str(error))
    if not isinstance(row, dict):
        return Fault("wrong_type", f"the line is {type(row).__name__}")
    return row if is_nested_within(row, 1 + MAX_NESTING) else NESTED_TOO_DEEP


def _is_nested_too_deep(line: bytes) -> bool:
    """Check the nesting of a line that is no JSON, of which decoders see more or less before they give up."""
    depth = 0
    for mark in _STRING.sub(b"", line).translate(None, _NO_BRACKETS):
        depth += 1 if mark in b"[{" else -1
        if depth > 1 + MAX_NESTING:
            return True
    return False


def _truncated_line_error(piece: ByteRange, place: int, line: bytes, fault: Fault) -> InputError:
    """What to say of a last line that can't be read."""
    if b"\0" in line:
        what = f"from byte {place + line.index(0):,} on it holds NUL bytes, as a crash or a full disk leaves them"
        return InputError(what, piece.file.path, "fetch or write the file again, or remove them")
    last = format_row(piece.file.name, place, piece.file)
    what = f"its last line, {last}, is cut off ({fault.detail or fault.reason})"
    return InputError(what, piece.file.path, "fetch or write the file again, or remove that line")


def raise_if_document(first_line: bytes, where: object) -> None:
    """Raise InputError if a first line that is no JSON object begins a JSON array, or an object over many lines."""
    first_line = first_line.lstrip()
    if first_line[:1] == b"[":
        fix = "write a line for each element: jq -c '.[]' FILE"
        raise InputError("it is a JSON array, not JSON lines", where, fix)
    if first_line[:1] + first_line[1:].lstrip(b" \t\r") == b"{\n":
        fix = "write a line for each: jq -c . FILE"
        raise InputError("its objects are spread over lines", where, fix)


def _has_lone_surrogate(line: bytes) -> Fault | None:
    """Half of a surrogate pair, escaped, is JSON by the letter but no text."""
    try:
        json.dumps(json.loads(line), ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        return Fault("lone_surrogate", "an escaped half of a pair")
    except (ValueError, RecursionError):
        return None
    return None
