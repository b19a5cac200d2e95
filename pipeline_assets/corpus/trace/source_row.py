"""A row of a source: of a hub file at a commit, or of a file of this machine. How it is written, where it is listed."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline_assets.corpus.readers.lines import file_at, row_words
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.errors import InputError, UsageError

_SOURCE = re.compile(r"(?P<dataset>[\w.-]+/[\w.-]+)@(?P<commit>[0-9a-f]{40}):(?P<path>.+)#(?P<row>[0-9]+)")
_LIKE_A_HUB_FILE = re.compile(r"[\w-][\w.-]*/[\w.-]+@[^/:]*:")
_FILE = re.compile(r"(?P<path>.+)#(?P<row>[0-9]+)", re.DOTALL)


@dataclass(frozen=True)
class SourceRow:
    """A row, from 0, of a hub file at a commit."""

    dataset: str
    commit: str
    path: str
    row: int

    @property
    def file(self) -> str:
        """The file as manifests name it."""
        return f"{self.dataset}@{self.commit}:{self.path}"

    def __str__(self) -> str:
        return f"{self.file}#{self.row}"

    @classmethod
    def parse(cls, text: str) -> "SourceRow":
        """
        Raises:
            UsageError: not owner/name@commit:path#row.
        """
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
    """

    path: Path
    row: int

    @property
    def file(self) -> str:
        """The file as people name it; manifests name it below its folder."""
        return str(self.path)

    def __str__(self) -> str:
        return f"{self.file}#{self.row}"


AnyRow = SourceRow | FileRow


def place_told(row: AnyRow) -> str:
    """Where in its file a row is, in words; the number of its line where the file is here."""
    if isinstance(row, SourceRow):
        return f"row {row.row:,}"
    return row_words(row.path.name, row.row, file_at(row.path))


def parse_row(text: str) -> AnyRow:
    """A row as people write it: of a hub file, or `path#row`, the path as from where they are.

    Raises:
        UsageError: it is neither.
    """
    if _LIKE_A_HUB_FILE.match(text):
        return SourceRow.parse(text)
    match = _FILE.fullmatch(text)
    if match is None:
        fix = "write owner/name@commit:path#row, the commit with 40 hex digits, or of a file here path#row; rows from 0"
        raise UsageError("this is no row of a source", text, fix)
    return FileRow(Path(match["path"]).absolute(), int(match["row"]))


def hub_file(snapshot: Artifact, source: SourceRow) -> Mapping[str, Any]:
    """The entry of the row's file among a snapshot's inputs.

    Raises:
        InputError: there is none.
    """
    return listed_file(snapshot, source.file)


def listed_file(artifact: Artifact, name: str) -> Mapping[str, Any]:
    """The entry of a file among the inputs of what was read from it.

    Raises:
        InputError: there is none.
    """
    for entry in artifact.manifest.identity.inputs:
        if entry["name"] == name:
            return entry
    raise InputError(f"its manifest lists no {name}", artifact.folder, "run `corpusmill verify`, then rebuild it")
