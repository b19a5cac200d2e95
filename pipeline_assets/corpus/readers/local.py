"""Rows of local files, read in pieces.

| name | rows | position of a row (`source_row`) | pieces |
|---|---|---|---|
| `.jsonl` `.ndjson` `.ndjsonl` `.json` | lines | byte offset in the uncompressed text | byte ranges, divided at lines |
| JSON with one array or multi-line objects | the values | byte offset: see `json_values` | the file |
| `.csv` `.tsv` | rows after the header | byte offset of the first line | the file |
| `.parquet` | rows | number in the file, from 0 | runs of row groups |
| `.txt` `.md`, by `text_unit` | the file, paragraphs or lines | 0, or byte offset | the file, or byte ranges |
| `.html` `.htm` `.ipynb` `.docx` `.pdf` | the file | 0 | the file |

A piece of a text file has the paragraphs or lines that begin in it. All formats but Parquet may be compressed (zstd,
gzip, bzip2, xz). A compressed file is one piece, because reading cannot start in its middle.
"""

import fnmatch
import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

import pyarrow as pa
import pydantic

from pipeline_assets.corpus.readers.column_recipe import LicensedColumns, SourceLabels, column_fix
from pipeline_assets.corpus.readers.columns import check_columns, find_column
from pipeline_assets.corpus.readers.csv_rows import read_csv
from pipeline_assets.corpus.readers.faults import Fault, Row, utf8_fault
from pipeline_assets.corpus.readers.json_lines import json_rows, parse_row
from pipeline_assets.corpus.readers.json_values import file_values, is_array_or_multiline, is_array_or_multiline_file
from pipeline_assets.corpus.readers.lines import MAX_LINE_BYTES, line_before, line_blocks, piece_lines
from pipeline_assets.corpus.readers.local_parquet import RowGroupRun, parquet_rows, row_group_runs
from pipeline_assets.corpus.readers.source_folder import ByteRange, SourceFile, open_source, split_byte_ranges
from pipeline_assets.corpus.readers.source_formats import (
    COLUMN_FORMATS,
    COMPRESSION_SUFFIXES,
    FORMATS,
    Format,
    detect_format,
)
from pipeline_assets.corpus.readers.unreadable import note_unreadable
from pipeline_assets.corpus.readers.whole_files import extractor_versions, whole_file_rows
from pipeline_assets.spine.command_option import Option
from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.spine.key_types import OptionalPatterns, Patterns, pattern_rule

_JSON_HEAD_BYTES = 1 << 12
SAMPLE_SIZE = 20  # rows per file, and number of files, in a sample of first rows
Piece = ByteRange | RowGroupRun
TextUnit = Literal["file", "paragraph", "line"]
"""Unit of a text file that becomes a document."""
TEXT_COLUMNS = LicensedColumns(text="text", id=None, created_at=None, license=None)


_FILE_NAME_RULE = "must be a file name without folders, such as LICENSE or LICENSE*"


def _check_text_ending(ending: str) -> str:
    if not re.fullmatch(r"(\.[a-z0-9_+-]+)+", ending):
        raise ValueError("must be a dot and lower-case letters, such as .py, which also match upper case")
    known = tuple(suffix for suffix, format_ in FORMATS.items() if format_ in ("lines", "parquet", "text"))
    if ending.endswith((*known, *COMPRESSION_SUFFIXES)):
        raise ValueError(f"files that end with {ending} are read already; remove this ending")
    return ending


class LocalRecipe(SourceLabels):
    """Local files of one source, and the conversion of their rows to Documents.

    Attributes:
        columns: Columns of JSON, CSV and Parquet; None if no file has columns.
        text_unit: Unit of text that is one document; None if no file is text. With `line`, blank lines are skipped.
        exclude: Patterns of files and folders that are not read, relative to the source's folder.
        text_endings: Endings of further text files, such as `.py`. If `.html` is one, HTML pages are text with tags.
        license_files: Pattern of licence file names, such as LICENSE*; with None, no file is a licence file. A licence
            file does not become a document. It sets the licence of rows that state none, in its folder and in
            subfolders without their own licence file.
    """

    OMITTABLE_KEYS = SourceLabels.OMITTABLE_KEYS | {"exclude", "text_endings", "license_files"}
    files: Patterns = ("**/*",)
    exclude: OptionalPatterns = ()
    columns: LicensedColumns | None = LicensedColumns()
    text_unit: Annotated[TextUnit | None, Option("Document unit of text files: file, paragraph or line.")] = "file"
    text_endings: Annotated[
        tuple[Annotated[str, pydantic.AfterValidator(_check_text_ending)], ...], pydantic.Field(strict=False)
    ] = ()
    license_files: Annotated[str, pattern_rule(r"[^/]+", _FILE_NAME_RULE)] | None = None

    def detect_format(self, name: str) -> Format | None:
        """Detect the format of a file from its name; None if unknown."""
        return detect_format(name, self.text_endings)

    def is_one_document(self, name: str) -> bool:
        """Check whether a whole file becomes one document, and so counts as one row."""
        format_ = self.detect_format(name)
        return format_ not in COLUMN_FORMATS and (format_ != "text" or self.text_unit in (None, "file"))

    def row_columns(self, name: str) -> LicensedColumns:
        """Return the columns of a file's rows; only `text` if its format has no columns."""
        if self.detect_format(name) not in COLUMN_FORMATS:
            return TEXT_COLUMNS
        assert self.columns is not None, "plan_local checks it"
        return self.columns

    def is_license_file(self, name: str) -> bool:
        """Check whether a file's name matches `license_files`."""
        return self.license_files is not None and matches_name(name, self.license_files)


def matches_name(path: str, pattern: str) -> bool:
    """Check whether the last part of a path matches a shell pattern."""
    return fnmatch.fnmatchcase(PurePosixPath(path).name, pattern)


def plan_local(
    files: Sequence[SourceFile], recipe: LocalRecipe, shard_bytes: int, unreadable_reasons: dict[str, str] | None = None
) -> list[Piece]:
    """Divide files, where possible, into pieces of about `shard_bytes`, in order.

    For an unreadable file, plan one piece and add the reason to `unreadable_reasons`; if that is None, raise the error.
    """
    pieces: list[Piece] = []
    for file in files:
        planned: Sequence[Piece] = [ByteRange(file)]
        with note_unreadable(file, unreadable_reasons):
            planned = _plan_file(file, recipe, shard_bytes)
        pieces += planned
    return pieces


def begins_file(piece: Piece) -> bool:
    """Check whether a piece is the first of its file."""
    return (piece.first_group if isinstance(piece, RowGroupRun) else piece.start) == 0


def piece_rows(piece: Piece, recipe: LocalRecipe) -> Iterator[tuple[int, Row]]:
    """Yield (position, row or fault) for each row.

    A row of a format without columns has the key `text`, and may have `title` or `language`.
    """
    format_ = recipe.detect_format(piece.file.name)
    if format_ in COLUMN_FORMATS:
        return _rows_with_columns(piece)
    assert isinstance(piece, ByteRange), "only Parquet has row groups"
    if format_ is not None and format_ != "text":
        return whole_file_rows(piece.file, format_)
    readers = {"file": whole_text, "paragraph": paragraphs, "line": text_lines}
    texts = readers[recipe.text_unit or "file"](piece)
    return ((position, text if isinstance(text, Fault) else {"text": text}) for position, text in texts)


def _rows_with_columns(piece: Piece) -> Iterator[tuple[int, Row]]:
    if isinstance(piece, RowGroupRun):
        return parquet_rows(piece)
    if detect_format(piece.file.name) == "csv":
        return ((position, row) for position, _, row in read_csv(piece.file)[1])
    if piece.stop is None and is_array_or_multiline_file(piece.file):
        return ((position, parse_row(value, "value")) for position, value in file_values(piece.file))
    return json_rows(piece, piece_lines(piece))


def read_first_rows(file: SourceFile) -> list[dict[str, Any]]:
    """Return the valid rows among a file's first 20; InputError if all are faults."""
    rows: Iterator[tuple[int, Row]]
    if detect_format(file.name) == "parquet":
        rows = (row for run in row_group_runs(file, None, 1) for row in parquet_rows(run, SAMPLE_SIZE))
    else:
        rows = _rows_with_columns(ByteRange(file))
    first = [row for _, row in itertools.islice(rows, SAMPLE_SIZE)]
    faults = [row for row in first if isinstance(row, Fault)]
    if faults and len(faults) == len(first):
        scope = f"of the first {SAMPLE_SIZE} " if len(first) == SAMPLE_SIZE else ""
        what = f"no row {scope}can be read ({faults[0].reason}: {faults[0].detail})"
        raise InputError(what, file.path, "correct the rows")
    return [row for row in first if not isinstance(row, Fault)]


def check_first_rows(files: Sequence[SourceFile], columns: LicensedColumns) -> None:
    """Raise UsageError if the first 20 files lack columns of the recipe.

    Each Parquet and CSV file must have every column that the recipe names without alternatives. JSON files are examined
    together: at least one of their first rows must have the text column. Unreadable files are skipped.
    """
    samples: list[tuple[SourceFile, dict[str, Any]]] = []
    for file in files[:SAMPLE_SIZE]:
        with note_unreadable(file, {}):
            match detect_format(file.name):
                case "parquet":
                    row_group_runs(file, columns, 1)
                case "csv":
                    _check_header(file, columns)
                case "lines":
                    samples += [(file, row) for row in read_first_rows(file)]
    named = {field: name for field, name in columns if isinstance(name, str)}
    missing = {field: name for field, name in named.items() if not any(find_column(row, name) for _, row in samples)}
    if samples and "text" in missing:
        file, row = samples[0]
        names = ", ".join(list(row)[:8]) or "none"
        absent = ", no ".join(f"column `{name}`" for name in missing.values())
        what = f"the first rows have no {absent}; the first one has {names}"
        raise UsageError(what, file.path, "; ".join(map(column_fix, missing)))


def _check_header(file: SourceFile, columns: LicensedColumns) -> None:
    """Check the header of a CSV file for a recipe's columns; see `check_columns`."""
    names, _ = read_csv(file)
    if names:
        check_columns(pa.schema([(name, pa.string()) for name in names]), columns, file.path)


def _plan_file(file: SourceFile, recipe: LocalRecipe, shard_bytes: int) -> Sequence[Piece]:
    format_ = recipe.detect_format(file.name)
    if format_ is None:
        what = f"the file name must end with {', '.join([*FORMATS, *recipe.text_endings])}, compressed or not"
        fix = "rename the file, narrow the pattern, or add the ending to `text_endings` in the recipe"
        raise UsageError(what, file.path, fix)
    if format_ == "text":
        if recipe.text_unit is None:
            fix = "set `text_unit` in the recipe to `file`, `paragraph` or `line`"
            raise UsageError("the document unit of text files is not set", file.path, fix)
        is_whole = recipe.text_unit == "file"
        return [ByteRange(file)] if is_whole else split_byte_ranges(file, shard_bytes)
    if format_ not in COLUMN_FORMATS:
        extractor_versions([format_])  # raises if a package is missing
        return [ByteRange(file)]
    if recipe.columns is None:
        raise UsageError("the text column is not set", file.path, "set `columns` in the recipe")
    if format_ == "parquet":
        return row_group_runs(file, recipe.columns, shard_bytes)
    if format_ == "csv":
        _check_header(file, recipe.columns)
        return [ByteRange(file)]
    with open_source(file) as opened:
        head = opened.read(_JSON_HEAD_BYTES)
    if head[:4] == b"PAR1":
        raise InputError("the file is Parquet", file.path, "rename it to end with .parquet")
    if is_array_or_multiline(head):
        return [ByteRange(file)]
    return split_byte_ranges(file, shard_bytes)


def whole_text(piece: ByteRange) -> Iterator[tuple[int, str | Fault]]:
    """Yield offset 0 with a file's text or fault; InputError if the file is too long."""
    text = bytearray()  # a list of lines would need fifteen times as much memory for short lines
    for offset, block in line_blocks(piece.file):
        _raise_if_too_long(piece, 0, offset + len(block))
        text += block
    yield 0, _decode_text(text)


def paragraphs(piece: ByteRange) -> Iterator[tuple[int, str | Fault]]:
    """Yield the offset and the text or fault of each paragraph that begins in a range.

    A paragraph is a run of lines that are not blank, without its last newline. The last paragraph is read to its end,
    even beyond the range. A paragraph longer than `MAX_LINE_BYTES` raises InputError.
    """
    paragraph = bytearray()
    begin = 0
    is_after_blank = True if piece.start == 0 else None
    for offset, line in piece_lines(ByteRange(piece.file, piece.start)):
        is_blank = not line.strip()
        if is_after_blank is None:
            is_after_blank = not line_before(piece.file, offset).strip()
        if paragraph and is_blank:
            yield begin, _decode_text(paragraph.rstrip(b"\r\n"))
            paragraph = bytearray()
        if not paragraph and piece.stop is not None and offset >= piece.stop:
            return
        if paragraph or (is_after_blank and not is_blank):
            begin = begin if paragraph else offset
            _raise_if_too_long(piece, begin, offset + len(line))
            paragraph += line
        is_after_blank = is_blank
    if paragraph:
        yield begin, _decode_text(paragraph.rstrip(b"\r\n"))


def text_lines(piece: ByteRange) -> Iterator[tuple[int, str | Fault]]:
    """Yield the byte offset of each line that is not blank, and its text or fault."""
    for offset, line in piece_lines(piece):
        if line.strip():
            yield offset, _decode_text(line.rstrip(b"\r\n"))


def _raise_if_too_long(piece: ByteRange, begin: int, end: int) -> None:
    if end - begin > MAX_LINE_BYTES:
        what = f"the text at byte {begin:,} is longer than {MAX_LINE_BYTES >> 20} MiB"
        fix = "set `text_unit` to `paragraph` or `line`, or split the file at blank lines"
        raise InputError(what, piece.file.path, fix)


def _decode_text(text: bytes | bytearray) -> str | Fault:
    """Decode UTF-8; return a fault if the bytes are invalid."""
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as error:
        return utf8_fault(error)
