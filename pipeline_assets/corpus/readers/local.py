"""Local files → rows: JSON lines, Parquet and text, in pieces that are planned from sizes and footers alone.

| name | rows | place of a row (`source_row`) | pieces |
|---|---|---|---|
| `.jsonl` `.ndjson` `.json` | lines | bytes before it in the uncompressed text | byte ranges, cut at lines |
| `.parquet` | rows | number in the file, from 0 | runs of row groups |
| `.txt` `.md`, by `text_unit` | the file, paragraphs or lines | 0, or as of lines | the file, or byte ranges |

Byte ranges of paragraphs are cut at blank lines, of lines at each line.

Lines and texts may be compressed (zstd, gzip, bzip2, xz); such a file is one piece, since it can't be entered midway.
"""

import fnmatch
import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

import pydantic

from pipeline_assets.corpus.readers import source_folder
from pipeline_assets.corpus.readers.column_recipe import LicensedColumns, Patterns, SourceLabels, another_column
from pipeline_assets.corpus.readers.columns import Fault, find_column, utf8_fault
from pipeline_assets.corpus.readers.lines import MAX_LINE_BYTES, json_rows, line_before, line_blocks, lines
from pipeline_assets.corpus.readers.local_parquet import RowGroupRun, parquet_rows, row_group_runs
from pipeline_assets.corpus.readers.source_formats import COMPRESSED, FORMATS, Format, detect_format
from pipeline_assets.spine.errors import IN_RECIPE, InputError, UsageError, key
from pipeline_assets.spine.section import Option, text_rule

LOOKED_AT = 20  # rows of a file, where only the first are looked at; and files
Piece = source_folder.ByteRange | RowGroupRun
TextUnit = Literal["file", "paragraph", "line"]
"""What of a text file is a document."""
TEXT_COLUMNS = LicensedColumns(text="text", id=None, created_at=None, license=None)


_FILE_NAME_RULE = "it is the name of files in any folder, such as LICENSE or LICENSE*"
_LATER_KEYS = frozenset({"text_endings", "license_files"})


def _is_text_ending(ending: str) -> str:
    if not re.fullmatch(r"(\.[a-z0-9_+-]+)+", ending):
        raise ValueError("the ending of a name is a dot and lower-case letters, such as .py; it fits in either case")
    if ending.endswith((*FORMATS, *COMPRESSED)):
        raise ValueError(f"files that end with {ending} are read already, each as what it is: leave it out")
    return ending


class LocalRecipe(SourceLabels):
    """Local files of one kind and how their rows become Documents.

    Attributes:
        columns: of JSON lines and Parquet; None where all files are text.
        text_unit: None where no file is text. Blank lines are no documents of `line`.
        text_endings: what names of text files end with, beside .txt and .md: `.py`, say.
        license_files: pattern of names, such as LICENSE*. Such a file is no document; it says the licence of the rows
            in its folder and below it that don't say theirs, up to the next such file. None looks at none.
    """

    files: Patterns = ("**/*",)
    columns: LicensedColumns | None = LicensedColumns()
    text_unit: Annotated[TextUnit | None, Option("Of .txt files a document is a: file, paragraph, line.")] = "file"
    text_endings: Annotated[
        tuple[Annotated[str, pydantic.AfterValidator(_is_text_ending)], ...], pydantic.Field(strict=False)
    ] = ()
    license_files: Annotated[str, text_rule(re.compile(r"[^/]+").fullmatch, _FILE_NAME_RULE)] | None = None

    def content(self) -> dict[str, object]:
        """As `RecipePart.content`, without keys that came later and aren't used: what is made is what was made."""
        return {key: value for key, value in super().content().items() if value or key not in _LATER_KEYS}

    def detect_format(self, name: str) -> Format | None:
        """Return the format of a file, by its name; None if unknown."""
        return detect_format(name, self.text_endings)

    def is_license_file(self, name: str) -> bool:
        """Check by a file's name whether it states the licence of other files."""
        return self.license_files is not None and is_named(name, self.license_files)


def is_named(name: str, pattern: str) -> bool:
    """Whether the last part of a file's name fits a pattern, as in `list_files`."""
    return fnmatch.fnmatchcase(PurePosixPath(name).name, pattern)


def plan_local(files: Sequence[source_folder.SourceFile], recipe: LocalRecipe, shard_bytes: int) -> list[Piece]:
    """The files in pieces of about `shard_bytes`, in order: the same for the same sizes and footers.

    Small files are a piece each; `grouped_by_size` makes shards of them, by `bytes`.

    Raises:
        UsageError: a file of a format that isn't known, or that the recipe doesn't say how to read.
        InputError: a file that isn't what its name says, or Parquet without a column of the recipe.
    """
    return [piece for file in files for piece in _pieces(file, recipe, shard_bytes)]


def piece_rows(piece: Piece, recipe: LocalRecipe) -> Iterator[tuple[int, dict[str, Any] | Fault]]:
    """(place, row or fault) of every row that begins in the piece, as it stands in the file; a text is a row with one
    column, `text`.
    """
    if isinstance(piece, RowGroupRun):
        return parquet_rows(piece)
    if recipe.detect_format(piece.file.name) == "lines":
        return json_rows(piece, lines(piece))
    read = {"file": whole_text, "paragraph": paragraphs, "line": text_lines}[recipe.text_unit or "file"]
    texts = read(piece)
    return ((place, text if isinstance(text, Fault) else {"text": text}) for place, text in texts)


def first_rows(file: source_folder.SourceFile) -> list[dict[str, Any]]:
    """The first rows of a file of JSON lines or Parquet, without those that can't be read."""
    rows: Iterator[tuple[int, dict[str, Any] | Fault]]
    if detect_format(file.name) == "parquet":
        rows = (row for run in row_group_runs(file, None, 1) for row in parquet_rows(run, LOOKED_AT))
    else:
        [piece, *_] = source_folder.byte_value_ranges(file, file.bytes)
        rows = json_rows(piece, lines(piece))
    return [row for _, row in itertools.islice(rows, LOOKED_AT) if not isinstance(row, Fault)]


def check_first_rows(files: Sequence[source_folder.SourceFile], columns: LicensedColumns) -> None:
    """Raise UsageError if Parquet lacks a column that is named, or all first rows of JSON lines lack the text's."""
    lines_of: list[tuple[source_folder.SourceFile, dict[str, Any]]] = []
    for file in files[:LOOKED_AT]:
        match detect_format(file.name):
            case "parquet":
                row_group_runs(file, columns, 1)
            case "lines":
                lines_of += [(file, row) for row in first_rows(file)]
    if lines_of and not any(find_column(row, columns.text) for _, row in lines_of):
        file, row = lines_of[0]
        what = f"its first rows have no column `{columns.text}`; the first one has {', '.join(list(row)[:8]) or 'none'}"
        raise UsageError(what, file.path, another_column("text"))


def _pieces(file: source_folder.SourceFile, recipe: LocalRecipe, shard_bytes: int) -> Sequence[Piece]:
    kind = recipe.detect_format(file.name)
    if kind is None:
        what = f"its name ends with none of {', '.join([*FORMATS, *recipe.text_endings])}, compressed or not"
        fix = f"rename it, narrow the pattern, or add its ending to {key('text_endings', IN_RECIPE)}"
        raise UsageError(what, file.path, fix)
    if kind == "text":
        if recipe.text_unit is None:
            fix = f"set {key('text_unit', IN_RECIPE)} to `file`, `paragraph` or `line`"
            raise UsageError("what of a text file is a document is not said", file.path, fix)
        return (
            [source_folder.ByteRange(file)]
            if recipe.text_unit == "file"
            else source_folder.byte_value_ranges(file, shard_bytes)
        )
    if recipe.columns is None:
        raise UsageError("which column holds the text is not said", file.path, "set `columns` in the recipe")
    if kind == "parquet":
        return row_group_runs(file, recipe.columns, shard_bytes)
    with source_folder.open_source(file) as opened:
        if opened.read(4) == b"PAR1":
            raise InputError("it is a Parquet file", file.path, "give it a name that ends with .parquet")
    return source_folder.byte_value_ranges(file, shard_bytes)


def whole_text(piece: source_folder.ByteRange) -> Iterator[tuple[int, str | Fault]]:
    """(0, the file's text as it is, or the fault).

    Raises:
        InputError: it is longer than 256 MiB, or can't be read as `line_blocks` says.
    """
    text = bytearray()  # a line each, in a list, would take fifteen times as much where lines are short
    for place, block in line_blocks(piece.file):
        _check_size(piece, 0, place + len(block))
        text += block
    yield 0, _decoded(text)


def paragraphs(piece: source_folder.ByteRange) -> Iterator[tuple[int, str | Fault]]:
    """(place, text or fault) of the paragraphs that begin in the range, each to its end.

    A paragraph is a run of lines that are not blank. The newline of its last line is not part of it, others are.

    Raises:
        InputError: a paragraph is longer than 256 MiB, or the file can't be read as `line_blocks` says.
    """
    paragraph = bytearray()
    begin = 0
    is_after_blank = True if piece.start == 0 else None
    for place, line in lines(source_folder.ByteRange(piece.file, piece.start)):
        is_blank = not line.strip()
        if is_after_blank is None:
            is_after_blank = not line_before(piece.file, place).strip()
        if paragraph and is_blank:
            yield begin, _decoded(paragraph.rstrip(b"\r\n"))
            paragraph = bytearray()
        if not paragraph and piece.stop is not None and place >= piece.stop:
            return
        if paragraph or (is_after_blank and not is_blank):
            begin = begin if paragraph else place
            _check_size(piece, begin, place + len(line))
            paragraph += line
        is_after_blank = is_blank
    if paragraph:
        yield begin, _decoded(paragraph.rstrip(b"\r\n"))


def text_lines(piece: source_folder.ByteRange) -> Iterator[tuple[int, str | Fault]]:
    """Yield (place, text or fault) of the lines that begin in the range, without line ends; blank lines are skipped.

    Raises:
        InputError: a line is longer than 256 MiB, or the file cannot be read as `line_blocks` describes.
    """
    for place, line in lines(piece):
        if line.strip():
            yield place, _decoded(line.rstrip(b"\r\n"))


def _check_size(piece: source_folder.ByteRange, begin: int, end: int) -> None:
    if end - begin > MAX_LINE_BYTES:
        what = f"the text at byte {begin:,} is longer than {MAX_LINE_BYTES >> 20} MiB"
        fix = f"as {key('text_unit')} take `paragraph` or `line`, or cut the file at blank lines"
        raise InputError(what, piece.file.path, fix)


def _decoded(text: bytes | bytearray) -> str | Fault:
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as error:
        return utf8_fault(error)
