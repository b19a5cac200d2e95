"""What must hold of a sealed artifact: questions with a verdict, that checks of every system ask, and their record.

The record is `.NAME.checks.json` beside the artifact's folder NAME, a name that no artifact can have. It is of one
digest: of another content that lies there by now it says nothing. A record that can't be read, or that is none of ours,
counts as none: then the checks are asked again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from pipeline_assets.corpus.spine import durable
from pipeline_assets.corpus.spine.artifact import Artifact, Damage, verify
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.files import OwnFile, unreplaced
from pipeline_assets.corpus.spine.manifest import LabelsOf


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


def files_match_manifest(artifact: Artifact, labels_of: LabelsOf) -> Verdict:
    """Every file is there, byte for byte as it was sealed, and there are no others.

    Args:
        labels_of: names of the labels that artifacts of a kind have.
    """
    with unreplaced(artifact.folder):
        findings = list(verify(artifact.folder, labels_of))
    damage = [item for item in findings if isinstance(item, Damage)]
    if damage:
        return Verdict(False, f"{damage[0].path}: {damage[0].what}" + _and_more(len(damage)), {"damaged": len(damage)})
    size = sum(item.bytes for item in findings if not isinstance(item, Damage))
    return Verdict(True, f"{len(findings)} files, {size:,} bytes, as sealed", {"files": len(findings), "bytes": size})


def ledger_adds_up(artifact: Artifact) -> Verdict:
    """Rows in = rows out + merged + dropped + rejected, each with its reason; rejects are in the file of rejects."""
    ledger = artifact.manifest.identity.ledger
    kept_aside = sum(file.rows for file in artifact.manifest.identity.files if file.path.startswith("rejects"))
    numbers = {"in": ledger.rows_in, "out": ledger.out, "dropped": ledger.all_dropped, "rejected": ledger.all_rejected}
    holds = ledger.adds_up and ledger.all_rejected == kept_aside
    words = str(ledger) if holds else f"not so: {ledger}; {kept_aside:,} rows in the file of rejects"
    return Verdict(holds, words, numbers)


def _and_more(count: int) -> str:
    return f", and {count - 1} more" if count > 1 else ""


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
