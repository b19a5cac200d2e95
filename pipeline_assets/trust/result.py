"""Results of a verification, also as JSON."""

import datetime
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, TypeVar

from pipeline_assets.build.pins.files_check import CACHE_FIX, CHANGED_FIX, HubCacheCheck, SourceFolderCheck
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.files import seeded_sort_key
from pipeline_assets.spine.lineage import Chain, Finding
from pipeline_assets.spine.manifest import LabelNames
from pipeline_assets.spine.rehash import HashTask

T = TypeVar("T")
_SHARE_PATTERN = re.compile(r"(?P<number>\d{1,9}(\.\d{1,30})?)(?P<percent>\s?%)?", re.ASCII)


@dataclass(frozen=True)
class FileSample:
    """Random sample of files: at most `share` (0 < share <= 1) of their bytes."""

    share: Fraction
    seed: str = "0"

    @classmethod
    def parse(cls, text: str, seed: str = "0") -> "FileSample":
        """Parse a share such as `5%` or `0.05`; raise UsageError if it is invalid."""
        match = _SHARE_PATTERN.fullmatch(text.strip())
        share = Fraction(match["number"]) / (100 if match["percent"] else 1) if match else Fraction(0)
        if not 0 < share <= 1 or (match and not match["percent"] and share == 1):  # `1` could be 1 %
            raise UsageError(f"must be a share above 0 and up to 100 %, got {text!r}", "--sample", "write 5% or 0.05")
        return cls(share, seed)

    def __str__(self) -> str:
        return f"{float(self.share * 100):.12g}%"

    def select(self, items: Sequence[T], size: Callable[[T], int], names: Callable[[T], Sequence[str]]) -> list[T]:
        """Select random items of at most `share` of the total size; keep their order.

        The seed and the `names` that identify an item determine the random order. Items that do not fit are skipped.
        """
        budget = math.floor(self.share * sum(map(size, items)))
        ranks = [seeded_sort_key("sample", self.seed, *names(item)) for item in items]
        chosen = set()
        for number in sorted(range(len(items)), key=ranks.__getitem__):
            if size(items[number]) <= budget:
                budget -= size(items[number])
                chosen.add(number)
        return [item for number, item in enumerate(items) if number in chosen]


ChainVerdict = Literal["intact", "intact of a sample", "source changed", "incomplete", "damaged"]
TaskState = Literal["as_sealed", "not_read", "damaged"]


@dataclass(frozen=True)
class VerificationScope:
    """Extent of a verification."""

    root: Path | None = None  # data root whose upstream artifacts and inputs are verified, too; None: only the artifact
    sample: FileSample | None = None  # sample of the files to read; None reads all
    checks_content: bool = False  # recompute content hashes of compressed and Parquet files; implied by `sample`
    threads: int = 2
    log_every_s: float = 10.0


@dataclass
class Verification:
    """State of a verification: files to check, and findings."""

    folder: Path
    scope: VerificationScope
    chain: Chain
    tasks: list[HashTask]  # one for each artifact file that has its sealed size
    findings: list[Finding]  # damage, missing inputs, and changed files in local folders
    scan_finding_count: int  # findings about manifests and files of artifacts, which come first
    started_at: datetime.datetime
    label_names: LabelNames
    hub_check: HubCacheCheck | None = None  # of inputs in the hub cache; None without a data root
    source_check: SourceFolderCheck | None = None  # of inputs in local folders; None without a data root
    content_results: list[str | None] = field(default_factory=list)  # error of each recomputed content hash, or None
    unread_content_count: int = 0  # intact files whose content hash was not recomputed
    # By the task's id(), because two tasks may be equal.
    _errors_by_task_id: dict[int, str | None] = field(default_factory=dict)

    def add_results(self, results: Iterable[tuple[HashTask, str | None]]) -> None:
        """Add the results of all finished tasks, in any order; errors become findings."""
        self._errors_by_task_id |= {id(task): error for task, error in results}
        for tasks, fix in zip(self.task_groups, ("", f"; {CACHE_FIX}", f"; {CHANGED_FIX}"), strict=True):
            damaged = [
                Finding(task.paths[0], error + fix, task.owner_digest)
                for task in tasks
                if (error := self._errors_by_task_id.get(id(task))) is not None
            ]
            self.findings += damaged
        if self.source_check is not None:
            self.source_check.findings += damaged  # `damaged` is of the last group, the source folders

    def task_state(self, task: HashTask) -> TaskState:
        if id(task) not in self._errors_by_task_id:
            return "not_read"
        return "as_sealed" if self._errors_by_task_id[id(task)] is None else "damaged"

    @property
    def intact_tasks(self) -> list[HashTask]:
        """Hash tasks of artifact files that match their manifests."""
        return [task for task in self.tasks if self.task_state(task) == "as_sealed"]

    @property
    def verdict(self) -> ChainVerdict:
        """Verdict on everything that was checked.

        `intact` requires that every file was read. `incomplete`: nothing is damaged, but upstream artifacts are
        missing. `source changed`: the only findings are changed files in local source folders.
        """
        changed = len(self.source_check.findings) if self.source_check is not None else 0
        if len(self.findings) > len(self.chain.missing_inputs) + changed:
            return "damaged"
        if self.chain.missing_inputs:
            return "incomplete"
        if changed:
            return "source changed"
        return "intact" if not self.unread_tasks else "intact of a sample"

    def is_damaged(self, artifact: Artifact) -> bool:
        """Check whether an artifact has a finding other than a missing input."""
        digest = artifact.manifest.digest
        return any(entry.artifact_digest == digest for entry in self.findings if entry not in self.chain.missing_inputs)

    @property
    def task_groups(self) -> Sequence[Sequence[HashTask]]:
        """Three groups of hash tasks: of the artifacts, the hub cache and source folders."""
        return self.tasks, *(check.tasks if check is not None else [] for check in (self.hub_check, self.source_check))

    @property
    def all_tasks(self) -> list[HashTask]:
        return [task for group in self.task_groups for task in group]

    @property
    def unread_tasks(self) -> list[HashTask]:
        """Tasks of files that were not read."""
        return [task for task in self.all_tasks if id(task) not in self._errors_by_task_id]

    @property
    def intact_bytes(self) -> int:
        """Total size of the artifacts' intact files, in bytes."""
        return sum(task.bytes for task in self.intact_tasks)

    @property
    def percent_read(self) -> float:
        """Percentage of the artifacts' bytes that was read, intact or damaged."""
        total = sum(task.bytes for task in self.tasks)
        read = sum(task.bytes for task in self.tasks if id(task) in self._errors_by_task_id)
        return 100 * read / total if total else 100.0


REPORT_SCHEMA = "corpusmill/verification/1"


def verification_json(verification: Verification, program: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a verification to its JSON report; `program` has versions and host."""
    scope, hub, sources = verification.scope, verification.hub_check, verification.source_check

    def files(tasks: Iterable[HashTask]) -> list[dict[str, Any]]:
        return [{"path": task.name, "bytes": task.bytes, "state": verification.task_state(task)} for task in tasks]

    return {
        "schema": REPORT_SCHEMA,
        "verdict": verification.verdict,
        "folder": str(verification.folder),
        "digest": verification.chain.artifacts[0].manifest.digest,
        "scope": {
            "upstream": scope.root is not None,
            "content": scope.checks_content or scope.sample is not None,
            "data": None if scope.root is None else str(scope.root),
            "sample": None if scope.sample is None else str(scope.sample),
            "seed": None if scope.sample is None else scope.sample.seed,
            "threads": scope.threads,
        },
        "findings": [
            {"path": str(finding.where), "what": finding.what, "artifact": finding.artifact_digest}
            for finding in verification.findings
        ],
        "files": len(verification.tasks),
        "files_as_sealed": len(verification.intact_tasks),
        "bytes": sum(task.bytes for task in verification.tasks),
        "bytes_as_sealed": verification.intact_bytes,
        "percent_of_bytes_read": round(verification.percent_read, 3),
        "contents": {
            "worked_out": len(verification.content_results),
            "as_the_digest_names": verification.content_results.count(None),
            "not_worked_out": verification.unread_content_count,
        },
        "artifacts": [
            {
                "kind": artifact.manifest.kind,
                "name": artifact.manifest.name,
                "digest": artifact.manifest.digest,
                "folder": str(artifact.folder),
                "findings": sum(
                    finding.artifact_digest == artifact.manifest.digest for finding in verification.findings
                ),
                "files": files(task for task in verification.tasks if task.owner_digest == artifact.manifest.digest),
            }
            for artifact in verification.chain.artifacts
        ],
        "hub": hub
        and {
            "listed": hub.listed_count,
            "whole": hub.whole_files,
            "in_part": hub.partial_files,
            "not_looked_for": hub.unsearched_names,
            "not_here": hub.unavailable,
            "files": files(hub.tasks),
        },
        "sources": sources
        and {
            "listed": sources.listed_count,
            "changed": [str(finding.where) for finding in sources.findings],
            "not_here": sources.unavailable,
            "files": files(sources.tasks),
        },
        "started_at_utc": verification.started_at.isoformat(timespec="seconds"),
        "program": dict(program),
    }
