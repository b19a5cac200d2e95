"""Lines of a source file, compressed or not, with their byte offsets.

An offset is the number of bytes before a line in the uncompressed text. It identifies a line even in a file that was
not read from its start, and does not change when the file is compressed. To print the line: `tail -c +$((OFFSET + 1))
FILE | head -1`.
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
_NO_LINES_FIX = "convert the file to lines of text, or exclude it"
_BLOCK_BYTES = 1 << 20
_MAX_COUNTED_BYTES = 1 << 32
_UTF8_MARK = b"\xef\xbb\xbf"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_NUMBERED_FORMATS = (".parquet", ".xml", ".7z")  # with numbered rows; all other formats consist of lines
# Faults of a last line that do not indicate a truncated file.
UNRELATED_TO_TRUNCATION = frozenset({"wrong_type", NESTED_TOO_DEEP.reason})
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*(?:"|\Z)', re.DOTALL)
_NO_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
_decode = msgspec.json.Decoder().decode


def line_blocks(file: SourceFile, start: int = 0) -> Iterator[tuple[int, bytes]]:
    """Yield blocks of whole lines with their byte offsets.

    The first block begins with the first line at or after `start`, which must be 0 for a compressed file. A UTF-8 byte
    order mark is skipped.

    Raises:
        InputError: The file cannot be read, is truncated, damaged or UTF-16, or has a line longer than 256 MiB.
    """
    with open_source(file) as opened:
        first = _seek_line(opened, start)
        yield from lines_with_offsets(_blocks(opened, file), first, file.path)


def lines_with_offsets(blocks: Iterable[bytes], offset: int, where: object) -> Iterator[tuple[int, bytes]]:
    """Yield blocks of whole lines with their byte offsets.

    `blocks` are consecutive blocks of a file, the first one at `offset`. A UTF-8 byte order mark is skipped.

    Raises:
        InputError: A line is longer than 256 MiB, or the file is UTF-16.
    """
    for block in whole_lines(blocks, where, _NO_LINES_FIX, MAX_LINE_BYTES):
        if offset == 0 and block.startswith(_UTF16_MARKS):
            raise InputError("the file is UTF-16", where, "convert it: iconv -f UTF-16 -t UTF-8")
        skipped = len(_UTF8_MARK) if offset == 0 and block.startswith(_UTF8_MARK) else 0
        yield offset + skipped, block[skipped:]
        offset += len(block)


def lines(piece: ByteRange) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that begin in a range, newlines included, with their offsets."""
    return read_lines(line_blocks(piece.file, piece.start), piece.stop)


def read_lines(blocks: Iterable[tuple[int, bytes]], stop: int | None) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of some blocks, newlines included, with their offsets.

    Reading ends before the first line at or after `stop`; None reads all.
    """
    for offset, block in blocks:
        for line in io.BytesIO(block):
            if stop is not None and offset >= stop:
                return
            yield offset, line
            offset += len(line)


def line_number(file: SourceFile, offset: int) -> int | None:
    """Return the number of the line at an offset, from 1, by counting lines.

    Returns:
        None if more than 4 GiB precede the line, or if the file has holes because only a sample of it was fetched.

    Raises:
        InputError: The file cannot be read.

    """
    number, position = 1, 0
    with open_source(file) as opened:
        counted_bytes = min(offset, file.bytes)  # SEEK_HOLE fails in an empty file
        if offset > _MAX_COUNTED_BYTES or (counted_bytes and opened.seek(0, os.SEEK_HOLE) < counted_bytes):
            return None
        opened.seek(0)
        for block in _blocks(opened, file):
            number += block.count(b"\n", 0, max(offset - position, 0))
            position += len(block)
            if position >= offset:
                break
    return number


def locate_line(file: SourceFile, line: int) -> int:
    """Return the offset of a line by its number, from 1; the inverse of `line_number`.

    Raises:
        InputError: The file cannot be read.
        UsageError: The format has numbered rows instead of lines, or the file has fewer lines.

    """
    if file.name.lower().endswith(_NUMBERED_FORMATS):
        raise UsageError("this format has numbered rows, not lines", file.path, "write path#row; rows count from 0")
    offset, remaining = 0, line - 1
    with open_source(file) as opened:
        for block in _blocks(opened, file):
            newlines = block.count(b"\n")
            if remaining < newlines or (remaining == newlines and not block.endswith(b"\n")):
                return offset + sum(map(len, block.split(b"\n")[:remaining])) + remaining
            remaining -= newlines
            offset += len(block)
    what = f"line {line:,} not found; the file has {line - 1 - remaining:,} lines"
    raise UsageError(what, file.path, "use a line number in this range")


def line_before(file: SourceFile, offset: int) -> bytes:
    """Return the line that ends at an offset, newline included.

    Empty at the start of the file. The file must not be compressed.
    """
    line = b""
    with open_source(file) as opened:
        while offset > 0 and b"\n" not in line[:-1]:
            step = min(offset, max(_BLOCK_BYTES >> 4, len(line)))
            offset -= step
            opened.seek(offset)
            line = opened.read(step) + line
    if offset == 0:
        line = line.removeprefix(_UTF8_MARK)
    return line[line[:-1].rfind(b"\n") + 1 :]


def _seek_line(opened: BinaryIO, start: int) -> int:
    """Seek the first line that begins at or after `start`; return its offset."""
    if start == 0:
        return 0
    offset = opened.seek(start - 1)
    while block := opened.read(_BLOCK_BYTES >> 4):
        end = block.find(b"\n") + 1
        if end:
            return opened.seek(offset + end)
        offset += len(block)
    return offset


def _blocks(opened: BinaryIO, file: SourceFile) -> Iterator[bytes]:
    """Yield decompressed blocks; a file read from its start is hashed on the way."""
    offset = opened.tell()
    codec = detect_codec(opened.read(HEAD_BYTES)) if offset == 0 else None
    opened.seek(offset)
    source = hash_while_reading(opened, file.path) if offset == 0 else opened
    return decompressed(source, codec, file.path, "fetch or write the file again", _BLOCK_BYTES)


def format_row(name: str, row: int, file: SourceFile | None) -> str:
    """Format the position of a row for people.

    The text is `line 12 (byte 3,456)`, `byte 3,456` if the line cannot be counted, or `row 12` for formats without
    lines.

    Args:
        name: Name of the file; determines the format.
        row: The row's `source_row`.
        file: None if the file is not on this machine.

    """
    if name.lower().endswith(_NUMBERED_FORMATS):
        return f"row {row:,}"
    try:
        line = None if file is None else line_number(file, row)
    except InputError:
        line = None
    return f"byte {row:,}" if line is None else f"line {line:,} (byte {row:,})"


def reject_formatter(files: Iterable[SourceFile]) -> RejectFormatter:
    """Return a formatter for the rejects of these files."""
    by_name = {file.name: file for file in files}
    return lambda reject: reject.describe(format_row(reject.file, reject.row, by_name.get(reject.file)))


def format_numbered_reject(reject: Reject) -> str:
    """Format a reject of a file with numbered rows."""
    return reject.describe(f"row {reject.row:,}")


def file_at(path: Path) -> SourceFile | None:
    """Return the source file at a path; None if it does not exist."""
    return SourceFile(path, path.name, path.stat().st_size) if path.is_file() else None


def json_rows(piece: ByteRange, lines: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, dict[str, Any] | Fault]]:
    """Yield the offset and the row or fault of every line that is not blank.

    NaN and Infinity are not JSON. If a key is repeated, its last value is used.

    Raises:
        InputError: The file is truncated or ends with NUL bytes (the last line has no newline and cannot be parsed), or
            is one JSON value over many lines.
    """
    is_first = piece.start == 0
    for offset, line in lines:
        row = read_row(line)
        if not isinstance(row, dict):
            if not line.strip():
                continue
            if is_first:
                raise_if_document(line, piece.file.path)
            if not line.endswith(b"\n") and row.reason not in UNRELATED_TO_TRUNCATION:
                raise _truncated_line_error(piece, offset, line, row)
        is_first = False
        yield offset, row


def read_row(line: bytes) -> dict[str, Any] | Fault:
    """Parse a line as a JSON object; return a fault if that fails.

    Faults: `not_json`, `wrong_type`, `invalid_utf8`, `lone_surrogate`, `nested_too_deep`. The row itself does not count
    as a level of `MAX_NESTING`.
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
        return _find_lone_surrogate(line) or Fault("not_json", str(error))
    if not isinstance(row, dict):
        return Fault("wrong_type", f"the line is {type(row).__name__}")
    return row if is_nested_within(row, 1 + MAX_NESTING) else NESTED_TOO_DEEP


def _is_nested_too_deep(line: bytes) -> bool:
    """Check the nesting of a line that is not JSON.

    Decoders may reject it before they reach its maximum depth.
    """
    depth = 0
    for bracket in _STRING.sub(b"", line).translate(None, _NO_BRACKETS):
        depth += 1 if bracket in b"[{" else -1
        if depth > 1 + MAX_NESTING:
            return True
    return False


def _truncated_line_error(piece: ByteRange, offset: int, line: bytes, fault: Fault) -> InputError:
    """Return the error for a position line that cannot be parsed."""
    if b"\0" in line:
        what = f"from byte {offset + line.index(0):,} on, the file contains NUL bytes, as after a crash or a full disk"
        return InputError(what, piece.file.path, "fetch or write the file again, or remove these bytes")
    position = format_row(piece.file.name, offset, piece.file)
    what = f"the last line, {position}, is truncated ({fault.detail or fault.reason})"
    return InputError(what, piece.file.path, "fetch or write the file again, or remove that line")


def raise_if_document(first_line: bytes, where: object) -> None:
    """Raise InputError if a JSON array, or an object on several lines, begins here."""
    first_line = first_line.lstrip()
    if first_line[:1] == b"[":
        fix = "write one line per element: jq -c '.[]' FILE"
        raise InputError("the file is a JSON array, not JSON lines", where, fix)
    if first_line[:1] + first_line[1:].lstrip(b" \t\r") == b"{\n":
        fix = "write one line per object: jq -c . FILE"
        raise InputError("JSON objects are spread over several lines", where, fix)


def _find_lone_surrogate(line: bytes) -> Fault | None:
    """Return a fault if a line has an escaped half of a surrogate pair.

    Such a line is valid JSON but not text.
    """
    try:
        json.dumps(json.loads(line), ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        return Fault("lone_surrogate", "an escaped half of a pair")
    except (ValueError, RecursionError):
        return None
    return None
