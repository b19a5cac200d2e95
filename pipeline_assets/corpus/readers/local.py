"""Local files → Documents: JSON lines, Parquet and text, in pieces that are planned from sizes and footers alone.

| name | rows | place of a row (`source_row`) | pieces |
|---|---|---|---|
| `.jsonl` `.ndjson` `.json` | lines | bytes before it in the uncompressed text | byte ranges, cut at lines |
| `.parquet` | rows | number in the file, from 0 | runs of row groups |
| `.txt` | the file, or paragraphs | 0, or as of lines | the file, or byte ranges, cut at blank lines |

Lines and texts may be compressed (zstd, gzip, bzip2, xz); such a file is one piece, since it can't be entered midway.
"""

import functools
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

import pydantic

from pipeline_assets.corpus.document import Document
from pipeline_assets.corpus.readers.column_map import LicensedColumns
from pipeline_assets.corpus.readers.json_rows import json_rows
from pipeline_assets.corpus.readers.local_parquet import RowGroupRun, parquet_rows, row_group_runs
from pipeline_assets.corpus.readers.local_rows import RowMap, SourceLabels, local_doc_id
from pipeline_assets.corpus.readers.plain_text import paragraphs, whole_text
from pipeline_assets.corpus.readers.row_faults import Fault
from pipeline_assets.corpus.readers.source_files import ByteRange, SourceFile, byte_ranges, open_source
from pipeline_assets.corpus.readers.source_lines import lines
from pipeline_assets.corpus.spine.errors import IN_RECIPE, InputError, UsageError, key
from pipeline_assets.corpus.spine.recipe import Option
from pipeline_assets.corpus.spine.rejects import Reject

Piece = ByteRange | RowGroupRun
Format = Literal["lines", "parquet", "text"]
_FORMATS: dict[str, Format] = {
    ".jsonl": "lines",
    ".ndjson": "lines",
    ".json": "lines",
    ".parquet": "parquet",
    ".txt": "text",
}
_COMPRESSED = (".gz", ".zst", ".zstd", ".bz2", ".xz")
_TEXT_COLUMNS = LicensedColumns(text="text", id=None, created_at=None, license=None)


class LocalRecipe(SourceLabels):
    """Local files of one kind and how their rows become Documents.

    Attributes:
        files: patterns, relative to the source's folder, see `list_files`.
        columns: of JSON lines and Parquet; None where all files are text.
        text_unit: what of a text file is a document; None where no file is text.
    """

    files: Annotated[tuple[str, ...], pydantic.Field(strict=False, min_length=1)]
    columns: LicensedColumns | None
    text_unit: Annotated[
        Literal["file", "paragraph"] | None,
        Option("Of .txt files a document is a: file, paragraph.", default="file"),
    ]


def plan_local(files: Sequence[SourceFile], recipe: LocalRecipe, shard_bytes: int) -> list[Piece]:
    """The files in pieces of about `shard_bytes`, in order: the same for the same sizes and footers.

    Small files are a piece each; `spine.shards.grouped_by_size` makes shards of them, by `bytes`.

    Raises:
        UsageError: a file of a format that isn't known, or that the recipe doesn't say how to read.
        InputError: a file that isn't what its name says, or Parquet without a column of the recipe.
    """
    return [piece for file in files for piece in _pieces(file, recipe, shard_bytes)]


def read_piece(piece: Piece, recipe: LocalRecipe) -> Iterator[Document | Reject]:
    """A Document or a Reject for every row that begins in the piece, in file order.

    Raises:
        InputError: the file can't be trusted: cut off, damaged, changed since it was planned.
    """
    name = piece.file.name
    columns = _TEXT_COLUMNS if _format(piece.file) == "text" else recipe.columns
    assert columns is not None, "plan_local checks it"
    document = RowMap(columns, recipe, name, functools.partial(local_doc_id, recipe.source)).document
    for place, row in piece_rows(piece, recipe):
        yield Reject(name, place, row.reason, row.detail) if isinstance(row, Fault) else document(row, place)


def piece_rows(piece: Piece, recipe: LocalRecipe) -> Iterator[tuple[int, dict[str, Any] | Fault]]:
    """(place, row or fault) of every row that begins in the piece, as it stands in the file; a text is a row with one
    column, `text`.

    Raises:
        InputError: as `read_piece` does.
    """
    if isinstance(piece, RowGroupRun):
        return parquet_rows(piece)
    if _format(piece.file) == "lines":
        return json_rows(piece, lines(piece))
    texts = whole_text(piece) if recipe.text_unit == "file" else paragraphs(piece)
    return ((place, text if isinstance(text, Fault) else {"text": text}) for place, text in texts)


def _pieces(file: SourceFile, recipe: LocalRecipe, shard_bytes: int) -> Sequence[Piece]:
    kind = _format(file)
    if kind == "text":
        if recipe.text_unit is None:
            fix = f"set {key('text_unit', IN_RECIPE)} to `file` or `paragraph`"
            raise UsageError("what of a text file is a document is not said", file.path, fix)
        return [ByteRange(file)] if recipe.text_unit == "file" else byte_ranges(file, shard_bytes)
    if recipe.columns is None:
        raise UsageError("which column holds the text is not said", file.path, "set `columns` in the recipe")
    if kind == "parquet":
        return row_group_runs(file, recipe.columns, shard_bytes)
    with open_source(file) as opened:
        if opened.read(4) == b"PAR1":
            raise InputError("it is a Parquet file", file.path, "give it a name that ends with .parquet")
    return byte_ranges(file, shard_bytes)


def _format(file: SourceFile) -> Format:
    """By its name: nothing in a text file says that its lines are not meant to be JSON."""
    name = file.name.lower()
    for suffix in _COMPRESSED:
        name = name.removesuffix(suffix)
    for suffix, kind in _FORMATS.items():
        if name.endswith(suffix):
            return kind
    what = f"its name ends with none of {', '.join(_FORMATS)}, compressed or not"
    raise UsageError(what, file.path, "rename it, or narrow the pattern in `files`")
