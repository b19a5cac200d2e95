"""Positions of rows in source files, as text for people and as line numbers.

A position is the byte offset of a line in the uncompressed text, or a row number, counted from 0.
"""

import itertools
import os
from collections import deque
from collections.abc import Iterable
from pathlib import Path

from pipeline_assets.corpus.readers.csv_rows import read_csv
from pipeline_assets.corpus.readers.lines import UTF8_MARK, read_blocks
from pipeline_assets.corpus.readers.source_folder import SourceFile, open_source
from pipeline_assets.corpus.readers.source_formats import strip_compression_suffix
from pipeline_assets.corpus.readers.unreadable import UNREADABLE
from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.spine.plural import pluralize
from pipeline_assets.spine.rejects import Reject, RejectFormatter

_MAX_COUNTED_BYTES = 1 << 32
# Formats in which a position is a row number; in all others, it is a byte offset.
_NUMBERED_FORMATS = (".parquet", ".xml", ".7z", ".docx", ".pdf")


def has_numbered_rows(name: str) -> bool:
    """Check whether row positions in a file are row numbers, not byte offsets."""
    return strip_compression_suffix(name).lower().endswith(_NUMBERED_FORMATS)


def line_number(file: SourceFile, offset: int) -> int | None:
    """Return the number of the line at a byte offset; lines count from 1.

    Return None if more than 4 GiB precede the line, or if the file is sparse because only a sample was fetched.
    """
    number, position = 1, 0
    with open_source(file) as opened:
        counted_bytes = min(offset, file.bytes)  # SEEK_HOLE fails in an empty file
        if offset > _MAX_COUNTED_BYTES or (counted_bytes and opened.seek(0, os.SEEK_HOLE) < counted_bytes):
            return None
        opened.seek(0)
        for block in read_blocks(opened, file):
            number += block.count(b"\n", 0, max(offset - position, 0))
            position += len(block)
            if position >= offset:
                break
    return number


def locate_line(file: SourceFile, line: int) -> int:
    """Return the byte offset of a line; lines count from 1.

    For CSV and TSV, return the offset of the row that contains the line, if any. Raise UsageError if the line does not
    exist or is the header of a table, or if the format has numbered rows.
    """
    if has_numbered_rows(file.name):
        raise UsageError("this format has numbered rows, not lines", file.path, "write path#row; rows count from 0")
    is_table = strip_compression_suffix(file.name).lower().endswith((".csv", ".tsv"))
    offset, remaining, is_cut_off = 0, line - 1, False
    with open_source(file) as opened:
        for block in read_blocks(opened, file):
            newlines = block.count(b"\n")
            if remaining < newlines or (remaining == newlines and not block.endswith(b"\n")):
                # The line begins in this block, after `remaining` other lines with one newline each.
                offset += sum(map(len, block.split(b"\n")[:remaining])) + remaining
                offset = len(UTF8_MARK) if offset == 0 and block.startswith(UTF8_MARK) else offset
                return _row_start(file, offset, line) if is_table else offset
            remaining -= newlines
            offset += len(block)
            is_cut_off = not block.endswith(b"\n")
    # The last line may lack a newline.
    count = line - 1 - remaining + is_cut_off
    what = f"line {line:,} not found; the file has {pluralize(count, 'line')}"
    raise UsageError(what, file.path, "use a line number in this range")


def _row_start(file: SourceFile, offset: int, line: int) -> int:
    """Return the offset of the CSV or TSV row that contains the line at `offset`.

    Return `offset` if the line is blank and follows a row, because no row contains it.
    """
    rows = ((start, start + len(content)) for start, content, _ in read_csv(file)[1])
    before = deque(itertools.takewhile(lambda row: row[0] <= offset, rows), maxlen=1)
    if not before:
        raise UsageError(f"line {line:,} is the header", file.path, "use a line of a row")
    [(start, end)] = before
    return start if offset < end else offset


def format_row_position(name: str, position: int, file: SourceFile | None) -> str:
    """Format a position as `line 12 (byte 3,456)`, or `row 12` if rows are numbered.

    Return only `byte 3,456` if lines cannot be counted, or if `file` is None, as for a file on another machine.
    """
    if has_numbered_rows(name):
        return f"row {position:,}"
    try:
        line = None if file is None else line_number(file, position)
    except InputError:
        line = None
    return f"byte {position:,}" if line is None else f"line {line:,} (byte {position:,})"


def reject_formatter(files: Iterable[SourceFile]) -> RejectFormatter:
    """Return a function that formats a reject of these files with its position."""
    by_name = {file.name: file for file in files}

    def format_reject(reject: Reject) -> str:
        if reject.reason == UNREADABLE:
            return f"{reject.file}: {reject.reason} ({reject.detail})"
        return reject.describe(format_row_position(reject.file, reject.row, by_name.get(reject.file)))

    return format_reject


def format_numbered_reject(reject: Reject) -> str:
    """Format a reject of a file whose positions are row numbers."""
    return reject.describe(f"row {reject.row:,}")


def source_file_at(path: Path) -> SourceFile | None:
    """Return the file at a path, with its base name as name; None if it is missing."""
    return SourceFile(path, path.name, path.stat().st_size) if path.is_file() else None
