"""A row of a source, a hub file at a commit or a file of this machine: how it is written, what lists it, and its
record, byte for byte.
"""

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

from pipeline_assets.corpus.decontamination.recipe import EVALUATION_STAGE
from pipeline_assets.corpus.formats.parquet_rows import row_of_file
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.readers.hub_listing import HubFile
from pipeline_assets.corpus.readers.lines import line_blocks, read_lines
from pipeline_assets.corpus.readers.row_positions import file_at, format_row, locate_line
from pipeline_assets.corpus.readers.source_folder import SourceFile, folder_path, has_changed
from pipeline_assets.corpus.readers.source_formats import detect_format
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.spine.lineage import Lineage
from pipeline_assets.spine.manifest import Manifest

_SOURCE = re.compile(r"(?P<dataset>[\w.-]+/[\w.-]+)@(?P<commit>[0-9a-f]{40}):(?P<path>.+)#(?P<row>[0-9]{1,18})")
_HUB_FILE_START = re.compile(r"[\w-][\w.-]*/[\w.-]+@[^/:]*:")
_LINE = re.compile(r"(?P<path>.+):(?P<line>[1-9][0-9]{0,17})", re.DOTALL)
_FILE = re.compile(r"(?P<path>.+)#(?P<row>[0-9]{1,18})", re.DOTALL)


@dataclass(frozen=True)
class SourceRow:
    """A row, from 0, of a hub file at a commit. Of JSON lines it may be numbered, without blank lines, as where rows
    are drawn; else it counts bytes. What is typed doesn't say.
    """

    dataset: str
    commit: str
    path: str
    row: int
    is_numbered: bool = field(default=False, compare=False)

    @property
    def file(self) -> str:
        """The file as manifests name it."""
        return f"{self.dataset}@{self.commit}:{self.path}"

    def __str__(self) -> str:
        return f"{self.file}#{self.row}"

    @classmethod
    def parse(cls, text: str) -> "SourceRow":
        """Raises UsageError where the text is not owner/name@commit:path#row."""
        match = _SOURCE.fullmatch(text)
        if match is None:
            fix = "write owner/name@commit:path#row, the commit with 40 hex digits, rows from 0"
            raise UsageError("this is no row of a hub file", text, fix)
        return cls(match["dataset"], match["commit"], match["path"], int(match["row"]))


@dataclass(frozen=True)
class FileRow:
    """A row of a file of this machine.

    Attributes:
        path: absolute.
        row: its number, or, of files of lines, the bytes before it: `source_row`, as its reader has it.
        has_changed: whether the file is no more what it was when it was read, by its size and time of change.
        line: its line, where that was typed.
    """

    path: Path
    row: int
    has_changed: bool = False
    line: int | None = None

    @property
    def file(self) -> str:
        """The file as people name it; manifests name it below its folder."""
        return str(self.path)

    def __str__(self) -> str:
        return f"{self.file}#{self.row}"


AnyRow = SourceRow | FileRow


def format_place(row: AnyRow) -> str:
    """Where in its file a row is, in words; the number of its line where the file is here."""
    if isinstance(row, SourceRow):
        return f"row {row.row:,}" if row.is_numbered else format_row(row.path, row.row, None)
    if row.has_changed:
        return f"{format_row(row.path.name, row.row, None)} of the file that was read; it has changed since"
    return format_row(row.path.name, row.row, file_at(row.path))


def parse_row(text: str) -> AnyRow:
    """A row as people write it: of a hub file, or `path#row`, or `path:line` of a file of lines that is here. The path
    is as from where they are. Raises UsageError: it is none of them, or there is no such line; InputError: the file of
    a line can't be read.
    """
    if _HUB_FILE_START.match(text):
        return SourceRow.parse(text)
    by_line = _LINE.fullmatch(text)
    file = None if by_line is None else file_at(Path(by_line["path"]).absolute())
    if by_line is not None and file is not None:
        line = int(by_line["line"])
        return FileRow(file.path, locate_line(file, line), line=line)
    match = _FILE.fullmatch(text)
    if match is None:
        fix = "write owner/name@commit:path#row, the commit with 40 hex digits, or of a file here path#row or path:line"
        raise UsageError("this is no row of a source", text, fix)
    return FileRow(Path(match["path"]).absolute(), int(match["row"]))


@dataclass(frozen=True)
class SourceListing:
    """The artifact whose manifest lists the files of a source, a raw source or a snapshot, and the corpus that was made
    from their rows, whatever filtered it since; both below one data root.
    """

    artifact: Artifact
    corpus: Artifact
    root: Path

    def row(self, file: str, row: int) -> AnyRow:
        """A row, of a file as a Document's `meta` or a normalised row names it."""
        folder = folder_path(self.artifact.manifest, self.root)
        if folder is not None:
            return FileRow(folder / file, row, has_changed(self.artifact.manifest, folder, file))
        recipe = self.artifact.manifest.identity.recipe
        found = SourceRow(recipe["dataset"], recipe["revision"], file, row)
        entries = (entry for entry in self.artifact.manifest.identity.inputs if entry["name"] == found.file)
        return replace(found, is_numbered=any("row_groups" in entry for entry in entries))

    def file_entry(self, file: str) -> Mapping[str, Any]:
        """The file's entry in the manifest. Raises InputError where there is none."""
        row = self.row(file, 0)
        name = row.file if isinstance(row, SourceRow) else file
        for entry in self.artifact.manifest.identity.inputs:
            if entry["name"] == name:
                return entry
        fix = "run `corpusmill verify`, then rebuild it"
        raise InputError(f"its manifest lists no {name}", self.artifact.folder, fix)


def find_listing(lineage: Lineage, corpus: Artifact, source: str) -> SourceListing:
    """What lists the files that the rows of a source in a corpus came from. Raises InputError where it is gone."""
    reader = corpus
    while not any("bytes" in entry for entry in reader.manifest.identity.inputs):
        corpus = reader
        if not reader.manifest.identity.inputs:
            what = f"it is {reader.manifest.kind}, made from nothing"
            raise InputError(what, reader.folder, "give a corpus that was made from a source")
        reader = lineage.locate(input_for_source(reader.manifest, source)["digest"], reader.manifest.name)
    return SourceListing(reader, corpus, lineage.root)


def input_for_source(corpus: Manifest, source: str) -> Mapping[str, Any]:
    """The input that the Documents of a source are in: of several the one that is named after it, else the first."""
    inputs = [entry for entry in corpus.identity.inputs if f"/{EVALUATION_STAGE.name}/" not in entry["name"]]
    return next((entry for entry in inputs if entry["name"].endswith(f"/{source}")), inputs[0])


def input_file_name(reader: Manifest, source: AnyRow, root: Path) -> str | None:
    """The name that rows made from it have of the row's file; None where the manifest lists no such file."""
    folder = folder_path(reader, root)
    names = [entry["name"] for entry in reader.identity.inputs]
    if isinstance(source, SourceRow):
        return source.path if folder is None and source.file in names else None
    if folder is None:
        return None
    return next((name for name in names if (folder / name).resolve() == source.path.resolve()), None)


def source_name(reader: Manifest, root: Path) -> str:
    """What people call a source: repo@commit, or its folder."""
    folder, recipe = folder_path(reader, root), reader.identity.recipe
    return str(folder) if folder is not None else f"{recipe['dataset']}@{recipe['revision']}"


def unread_reason(entry: Mapping[str, Any], row: int) -> str | None:
    """Why a row of a hub file, as a manifest lists it, was not read; None if it was, or where whole files are read."""
    if "row_groups" not in entry:
        return "no row group of the file was drawn"
    ranges = read_ranges(entry["row_groups"])
    if any(row in rows for rows in ranges):
        return None
    return "rows read of the file: " + (", ".join(f"{rows.start:,} to {rows.stop - 1:,}" for rows in ranges) or "none")


def read_ranges(row_groups: Sequence[Mapping[str, int]]) -> list[range]:
    """Rows of a hub file that were read by the row groups of a manifest; neighbours make one range, empty ones none."""
    ranges: list[range] = []
    for group in sorted(row_groups, key=lambda group: group["first_row"]):
        start, stop = group["first_row"], group["first_row"] + group["rows"]
        if ranges and ranges[-1].stop == start:
            ranges[-1] = range(ranges[-1].start, stop)
        elif group["rows"]:
            ranges.append(range(start, stop))
    return ranges


_BLOCK_BYTES = 1 << 22  # of a file of lines on a hub, fetched at once
_PLAIN = frozenset({".jsonl", ".ndjson", ".json"})


def read_record(row: AnyRow, hub: HubFiles) -> bytes:
    """The record of a source that a row is, byte for byte: a line without its newline, or a row of Parquet as JSON. Of
    plain lines on a hub, a few megabytes are fetched; other files whole.

    Raises:
        UsageError: its file is of another kind, or isn't what was read any more.
        InputError: from the hub; or there is no such record.
    """
    name = row.path.name if isinstance(row, FileRow) else row.path
    if detect_format(name) not in ("lines", "parquet"):
        raise UsageError("its file is neither JSON lines nor Parquet", row, "leave out --record")
    if isinstance(row, FileRow):
        if row.has_changed:
            raise UsageError("its file changed since it was read", row, "restore the file")
        return _record_in(SourceFile(row.path, name, row.path.stat().st_size), row.row)
    file = next((one for one in hub.list_files(row.dataset, row.commit) if one.path == row.path), None)
    if file is None:
        raise InputError("the commit has no such file", row, "check the address")
    if row.is_numbered and detect_format(name) == "lines":
        return _numbered_line(SourceFile(hub.fetch(row.dataset, row.commit, file).local, name, file.size), row.row)
    if PurePosixPath(name).suffix in _PLAIN:
        return _line_on_hub(row.dataset, row.commit, file, row.row, hub)
    return _record_in(SourceFile(hub.fetch(row.dataset, row.commit, file).local, name, file.size), row.row)


def _record_in(file: SourceFile, row: int) -> bytes:
    if detect_format(file.name) == "parquet":
        return json.dumps(row_of_file(file.path, row), ensure_ascii=False, default=str).encode()
    start = row if PurePosixPath(file.name).suffix in _PLAIN else 0
    found = next((line for place, line in read_lines(line_blocks(file, start), None) if place == row), None)
    if found is None:
        raise InputError(f"no line begins at byte {row:,}", file.path, "check that the file is what was read")
    return found.rstrip(b"\r\n")


def _numbered_line(file: SourceFile, number: int) -> bytes:
    lines = (line for _, line in read_lines(line_blocks(file, 0), None) if line.strip())
    found = next(itertools.islice(lines, number, None), None)
    if found is None:
        raise InputError(f"it has no row {number:,}", file.path, "check that the file is what was read")
    return found.rstrip(b"\r\n")


def _line_on_hub(dataset: str, commit: str, file: HubFile, place: int, hub: HubFiles) -> bytes:
    line = b""
    for start in range(place - place % _BLOCK_BYTES, file.size, _BLOCK_BYTES):
        span = hub.fetch(dataset, commit, file, start, min(start + _BLOCK_BYTES, file.size))
        head, newline, _ = span.local.read_bytes()[max(place - start, 0) :].partition(b"\n")
        line += head
        if newline:
            break
    return line.rstrip(b"\r")
