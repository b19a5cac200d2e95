"""Files that a stage of a build wrote, and that tasks of later stages read."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pipeline_assets.spine.errors import RetryableError
from pipeline_assets.spine.staging import OutputFile, StagingView

NOT_DIGESTED: Mapping[str, bool] = {"digested": False}
"""Metadata of a dataclass field that `task_digest` ignores, because other fields determine the content."""


@dataclass(frozen=True)
class StagedInput:
    """Input file of a task, written by an earlier stage of the same build."""

    path: Path = field(metadata=NOT_DIGESTED)
    sha256: str

    @classmethod
    def from_output(cls, staging: StagingView, file: OutputFile) -> "StagedInput":
        """Return a finished file of the staging directory as an input."""
        return cls(staging.path(file.path), file.sha256)

    def read(self) -> bytes:
        """Read the whole file; raise RetryableError if its hash is not `sha256`."""
        data = self.path.read_bytes()
        if (sha256 := hashlib.sha256(data).hexdigest()) != self.sha256:
            what = f"sha256 of the bytes that were read is {sha256}, written with {self.sha256}"
            raise RetryableError(what, self.path, "run the same command again")
        return data
