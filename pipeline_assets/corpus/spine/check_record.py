"""What checks said of a sealed artifact: `.NAME.checks.json` beside its folder NAME, a name that no artifact can have.

It is of one digest: of another content that lies there by now it says nothing. A file that can't be read, or that is
none of ours, counts as none: then the checks are asked again.
"""

import os
import stat
from collections.abc import Sequence
from pathlib import Path

import msgspec

from pipeline_assets.corpus.spine import durable

SCHEMA = "corpusmill/checks/1"
_LIMIT_BYTES = 1 << 20


class CheckResult(msgspec.Struct, frozen=True):
    """What one check said. One that is `blocking` holds back an artifact that fails it; else a failure is a warning."""

    name: str
    passed: bool
    blocking: bool
    because: str

    @property
    def holds_back(self) -> bool:
        return self.blocking and not self.passed

    @property
    def word(self) -> str:
        """Passed, or how bad it is."""
        return "passed" if self.passed else "FAILED" if self.blocking else "WARNING"


class _Record(msgspec.Struct, frozen=True):
    schema: str
    digest: str
    results: tuple[CheckResult, ...]


def keep_results(folder: Path, digest: str, results: Sequence[CheckResult]) -> None:
    """Writes what all checks said of the artifact that is sealed in a folder, in place of what they said before."""
    record = msgspec.json.encode(_Record(SCHEMA, digest, tuple(results)))
    durable.write_durably(_path(folder), msgspec.json.format(record, indent=1) + b"\n")


def kept_results(folder: Path, digest: str) -> tuple[CheckResult, ...] | None:
    """What checks said of the artifact with this digest; None where they were not asked."""
    try:
        record = msgspec.json.decode(_read(_path(folder)), type=_Record)
    except (OSError, msgspec.DecodeError, RecursionError):
        return None
    return record.results if (record.schema, record.digest) == (SCHEMA, digest) else None


def _path(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.checks.json")


def _read(path: Path) -> bytes:
    """The start of a plain file, no longer than ours ever are; nothing of what is none, such as a pipe."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        return file.read(_LIMIT_BYTES) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
