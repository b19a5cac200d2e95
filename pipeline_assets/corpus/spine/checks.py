"""What checks say of a sealed artifact, and the record of it.

The record is `.NAME.checks.json` beside the artifact's folder NAME, a name that no artifact can have. It is of one
digest: of another content that lies there by now it says nothing. A record that can't be read, or that is none of ours,
counts as none: then the checks are asked again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from pipeline_assets.corpus.spine import durable
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.files import OwnFile


@dataclass(frozen=True)
class Verdict:
    """Whether something holds, in words, and the numbers behind it.

    Attributes:
        applies: False where the question is none.
        is_slight: whether a failure is a warning at most, even of a blocking check.
    """

    holds: bool
    because: str
    numbers: Mapping[str, int | float | str] = field(default_factory=dict)
    applies: bool = True
    is_slight: bool = False


SCHEMA = "corpusmill/checks/1"


class CheckResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one check said. One that is `blocking` holds back an artifact that fails it; else a failure is a warning.

    Attributes:
        numbers: behind it.
        applies: False where the question is none.
    """

    name: str
    passed: bool
    blocking: bool
    because: str
    numbers: dict[str, int | float | str] = {}
    applies: bool = True

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
    durable.write_durably(record_path(folder), msgspec.json.format(record, indent=1) + b"\n")


def kept_results(folder: Path, digest: str) -> tuple[CheckResult, ...] | None:
    """What checks said of the artifact with this digest; None where they were not asked."""
    try:
        record = _FILE.read(record_path(folder))
    except (FileNotFoundError, InputError):
        return None
    return record.results if (record.schema, record.digest) == (SCHEMA, digest) else None


def record_path(folder: Path) -> Path:
    """Where what checks said of the artifact in a folder is kept."""
    return folder.with_name(f".{folder.name}.checks.json")
