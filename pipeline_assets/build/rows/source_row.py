"""Addresses of source rows: a row of a hub file at a commit, or of a local file."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from pipeline_assets.corpus.readers.row_positions import format_row_position, locate_line, source_file_at
from pipeline_assets.corpus.stores.object_source import source_path
from pipeline_assets.spine.errors import UsageError

_HUB_ROW = re.compile(r"(?P<dataset>[\w.-]+/[\w.-]+)@(?P<commit>[0-9a-f]{40}):(?P<path>.+)#(?P<row>[0-9]{1,18})")
_HUB_FILE_START = re.compile(r"[\w-][\w.-]*/[\w.-]+@[^/:]*:")
_LOCAL_LINE = re.compile(r"(?P<path>.+):(?P<line>[1-9][0-9]{0,17})", re.DOTALL)
# `dropped` lists an address with its line: `notes.jsonl#345, line 12 (byte 345)`.
_LOCAL_ROW = re.compile(r"(?P<path>.+)#(?P<row>[0-9]{1,18})(?:, (?:line|byte) [0-9].*)?", re.DOTALL)


@dataclass(frozen=True)
class HubRow:
    """A row of a hub file at a commit."""

    dataset: str
    commit: str
    path: str
    row: int  # number from 0 if `is_numbered` or the file's rows are numbered (`has_numbered_rows`), else a byte offset
    # `row` counts the nonblank lines of a JSON lines file, as in snapshots, instead of bytes. False if a user wrote it.
    is_numbered: bool = field(default=False, compare=False)

    @property
    def file(self) -> str:
        """Name of the file in manifests."""
        return f"{self.dataset}@{self.commit}:{self.path}"

    def __str__(self) -> str:
        return f"{self.file}#{self.row}"

    @classmethod
    def parse(cls, text: str) -> "HubRow":
        """Parse owner/name@commit:path#row, or raise UsageError."""
        match = _HUB_ROW.fullmatch(text)
        if match is None:
            fix = "write owner/name@commit:path#row, the commit with 40 hex digits, rows from 0"
            raise UsageError("not a row of a hub file", text, fix)
        return cls(match["dataset"], match["commit"], match["path"], int(match["row"]))


@dataclass(frozen=True)
class LocalRow:
    """A row of a local file."""

    path: Path  # absolute
    row: int  # number from 0 if the file's rows are numbered (`has_numbered_rows`), else a byte offset
    has_changed: bool = False  # in size or modification time, after the build read the file
    line: int | None = None  # from 1, if the user named the row by its line number

    @property
    def file(self) -> str:
        """Absolute path of the file; manifests have paths relative to the source folder."""
        return str(self.path)

    def __str__(self) -> str:
        return f"{self.file}#{self.row}"


AnySourceRow = HubRow | LocalRow


def format_place(row: AnySourceRow) -> str:
    """Format a row's position in its file, with the line number for a local file."""
    if isinstance(row, HubRow):
        return f"row {row.row:,}" if row.is_numbered else format_row_position(row.path, row.row, None)
    if row.has_changed:
        return f"{format_row_position(row.path.name, row.row, None)} of the file that was read; it has changed since"
    return format_row_position(row.path.name, row.row, source_file_at(row.path))


def parse_row_address(text: str, files: Iterable[Path]) -> AnySourceRow:
    """Parse owner/name@commit:path#row, or for a local file `path#row` or `path:line`.

    Rows are numbered from 0 (see `LocalRow`), lines from 1. If the file does not exist, the file in `files` whose path
    ends with the typed path is used; for the URL of an object, the object's copy.

    Raise UsageError if the text has another form, several of `files` match, or the file or line of a `path:line` is
    missing.
    """
    if _HUB_FILE_START.match(text):
        return HubRow.parse(text)
    by_line = _LOCAL_LINE.fullmatch(text)
    file = None if by_line is None else source_file_at(_find_file(by_line["path"], files))
    if by_line is not None and file is not None:
        line = int(by_line["line"])
        return LocalRow(file.path, locate_line(file, line), line=line)
    match = _LOCAL_ROW.fullmatch(text)
    if match is None and by_line is not None:
        raise UsageError("file not found", by_line["path"], "correct the path")
    if match is None:
        fix = "write owner/name@commit:path#row, the commit with 40 hex digits, for a local file path#row or path:line"
        raise UsageError("not a row of a source", text, fix)
    return LocalRow(_find_file(match["path"], files), int(match["row"]))


def _find_file(typed_path: str, files: Iterable[Path]) -> Path:
    path = Path(typed_path).absolute()
    if path.is_file():
        return path
    ending = f"/{source_path(typed_path)}"
    found = [*dict.fromkeys(file for file in files if f"{file}".endswith(ending))]
    if len(found) > 1:
        raise UsageError("several source files match", typed_path, f"write one of {', '.join(map(str, found))}")
    return found[0] if found else path
