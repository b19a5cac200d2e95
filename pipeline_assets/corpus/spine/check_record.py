"""What checks said of a sealed artifact: `.NAME.checks.json` beside its folder NAME, a name that no artifact can have.

It is of one digest: of another content that lies there by now it says nothing. A file that can't be read, or that is
none of ours, counts as none: then the checks are asked again.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from pipeline_assets.corpus.spine import durable
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.own_files import OwnFile

SCHEMA = "corpusmill/checks/1"


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


_FILE = OwnFile("record of checks", 1 << 20, "delete it: the checks are asked again", _Record)


def keep_results(folder: Path, digest: str, results: Sequence[CheckResult]) -> None:
    """Writes what all checks said of the artifact that is sealed in a folder, in place of what they said before."""
    record = msgspec.json.encode(_Record(SCHEMA, digest, tuple(results)))
    durable.write_durably(_path(folder), msgspec.json.format(record, indent=1) + b"\n")


def kept_results(folder: Path, digest: str) -> tuple[CheckResult, ...] | None:
    """What checks said of the artifact with this digest; None where they were not asked."""
    try:
        record = _FILE.read(_path(folder))
    except (FileNotFoundError, InputError):
        return None
    return record.results if (record.schema, record.digest) == (SCHEMA, digest) else None


def _path(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.checks.json")
