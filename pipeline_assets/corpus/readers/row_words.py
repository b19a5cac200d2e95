"""How people are told of a row of a source: by its line, with the byte beside it, by which data name it."""

from collections.abc import Iterable
from pathlib import Path

from pipeline_assets.corpus.readers.source_files import SourceFile
from pipeline_assets.corpus.readers.source_lines import line_number
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.rejects import Words

_NUMBERED = (".parquet", ".xml", ".7z")  # their rows have numbers; all else is lines, or records of lines


def row_words(name: str, row: int, file: SourceFile | None) -> str:
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


def reject_words(files: Iterable[SourceFile]) -> Words:
    """How people are told of a reject of one of these files."""
    by_name = {file.name: file for file in files}
    return lambda reject: reject.told(row_words(reject.file, reject.row, by_name.get(reject.file)))


def file_at(path: Path) -> SourceFile | None:
    """The file, if it is there."""
    return SourceFile(path, path.name, path.stat().st_size) if path.is_file() else None
