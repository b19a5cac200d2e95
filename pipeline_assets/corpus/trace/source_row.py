"""A row of a hub file at a commit: how it is written, and the file's entry in a snapshot's manifest."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.errors import InputError, UsageError

_SOURCE = re.compile(r"(?P<dataset>[\w.-]+/[\w.-]+)@(?P<commit>[0-9a-f]{40}):(?P<path>.+)#(?P<row>[0-9]+)")


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


def hub_file(snapshot: Artifact, source: SourceRow) -> Mapping[str, Any]:
    """The entry of the row's file among a snapshot's inputs.

    Raises:
        InputError: there is none.
    """
    for entry in snapshot.manifest.identity.inputs:
        if entry["name"] == source.file:
            return entry
    raise InputError(
        f"its manifest lists no {source.file}", snapshot.folder, "run `corpusmill verify`, then rebuild it"
    )
