"""A verification: what was asked for, what was checked, what was found; as JSON too, for programs and for records.

A sample is the same whenever it is drawn.
"""

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
from pipeline_assets.spine.files import seeded_rank
from pipeline_assets.spine.lineage import Chain, Finding
from pipeline_assets.spine.manifest import LabelNames
from pipeline_assets.spine.rehash import HashTask

T = TypeVar("T")
_SHARE = re.compile(r"(?P<number>\d{1,9}(\.\d{1,30})?)(?P<percent>\s?%)?", re.ASCII)


@dataclass(frozen=True)
class Sample:
    """How much is drawn, above 0 and up to 1, and the seed: another seed draws others."""

    share: Fraction
    seed: str = "0"

    @classmethod
    def parse(cls, text: str, seed: str = "0") -> "Sample":
        """A sample as people write it: `5%`, `0.05`. Raises UsageError where it is no share above 0 and up to 1."""
        match = _SHARE.fullmatch(text.strip())
        share = Fraction(match["number"]) / (100 if match["percent"] else 1) if match else Fraction(0)
        if not 0 < share <= 1 or (match and not match["percent"] and share == 1):  # `1` could be 1 %
            raise UsageError(f"{text!r} is no share", "--sample", "write one above 0 and up to 100 %: 5% or 0.05")
        return cls(share, seed)

    def __str__(self) -> str:
        return f"{float(self.share * 100):.12g}%"

    def fitting(self, items: Sequence[T], bytes_of: Callable[[T], int], names: Callable[[T], Sequence[str]]) -> list[T]:
        """Items by rank, each taken if what is taken stays within the share of all bytes; as they were ordered.

        So one that alone is more than the share is never taken: the sample costs what was asked for.
        """
        left = math.floor(self.share * sum(map(bytes_of, items)))
        taken = set()
        for number in sorted(
            range(len(items)), key=lambda number: seeded_rank("sample", self.seed, *names(items[number]))
        ):
            if bytes_of(items[number]) <= left:
                left -= bytes_of(items[number])
                taken.add(number)
        return [item for number, item in enumerate(items) if number in taken]


Verdict = Literal["intact", "intact of a sample", "source changed", "incomplete", "damaged"]
State = Literal["as_sealed", "not_read", "damaged"]


@dataclass(frozen=True)
class Scope:
    """How far a verification goes.

    Attributes:
        root: the data root in which the chain is followed upstream, and whose hub cache is looked into; None stays with
            the artifact and its members.
        sample: what is read of the bytes; None reads all.
        content: whether the contents of compressed and Parquet files are worked out again; of a sample they are.
        threads: how many files are read at a time.
    """

    root: Path | None = None
    sample: Sample | None = None
    content: bool = False
    threads: int = 2
    log_every_s: float = 10.0


@dataclass
class Verification:
    """What was checked, and what was found.

    Attributes:
        tasks: one for every file of the artifacts that is there in its size.
        findings: all damage, and what is missing.
        out_of_place: how many of the findings need no reading: files missing, of another size, not named.
        label_names: returns the names of the labels of a kind.
        hub, sources: what the hub's cache and the folders of sources hold of the files that the chain was made from;
            None where upstream was not asked for.
        contents: what is wrong with the content of each file in which it was worked out; None where nothing is.
        unread_contents: files that were read as stored, and have a content that was not worked out.
    """

    folder: Path
    scope: Scope
    chain: Chain
    tasks: list[HashTask]
    findings: list[Finding]
    out_of_place: int
    started_at: datetime.datetime
    label_names: LabelNames
    hub: HubCacheCheck | None = None
    sources: SourceFolderCheck | None = None
    contents: list[str | None] = field(default_factory=list)
    unread_contents: int = 0
    _complaints: dict[int, str | None] = field(default_factory=dict)  # by the task's id(): two tasks may be equal

    def add_results(self, results: Iterable[tuple[HashTask, str | None]]) -> None:
        """Tasks that are done, in any order; what is wrong becomes findings."""
        self._complaints |= {id(task): complaint for task, complaint in results}
        for part, cure in zip(self.parts, ("", f"; {CACHE_FIX}", f"; {CHANGED_FIX}"), strict=True):
            wrong = [
                Finding(task.paths[0], complaint + cure, task.owner)
                for task in part
                if (complaint := self._complaints.get(id(task))) is not None
            ]
            self.findings += wrong
        if self.sources is not None:
            self.sources.findings += wrong  # theirs is the last part

    def artifact_state(self, task: HashTask) -> State:
        """What is known of a file."""
        if id(task) not in self._complaints:
            return "not_read"
        return "as_sealed" if self._complaints[id(task)] is None else "damaged"

    @property
    def sealed_target(self) -> list[HashTask]:
        """The artifacts' files that are as sealed."""
        return [task for task in self.tasks if self.artifact_state(task) == "as_sealed"]

    @property
    def verdict(self) -> Verdict:
        """Intact is said of what was read to the last byte, and of nothing else; incomplete, where only upstream
        artifacts are missing; that the source changed, where only files that the chain was once made from did.
        """
        changed = len(self.sources.findings) if self.sources is not None else 0
        if len(self.findings) > len(self.chain.missing) + changed:
            return "damaged"
        if self.chain.missing:
            return "incomplete"
        if changed:
            return "source changed"
        return "intact" if not self.unread else "intact of a sample"

    def is_damaged(self, artifact: Artifact) -> bool:
        """Whether anything contradicts an artifact's own manifest."""
        digest = artifact.manifest.digest
        return any(finding.artifact == digest for finding in self.findings if finding not in self.chain.missing)

    @property
    def parts(self) -> Sequence[Sequence[HashTask]]:
        """Hash tasks of the artifacts, of the hub cache, of the folders of sources."""
        return self.tasks, *(held.tasks if held is not None else [] for held in (self.hub, self.sources))

    @property
    def all_tasks(self) -> list[HashTask]:
        """Of all parts, one after the other."""
        return [task for part in self.parts for task in part]

    @property
    def unread(self) -> list[HashTask]:
        """Files that the sample left out."""
        return [task for task in self.all_tasks if id(task) not in self._complaints]

    @property
    def bytes_checked(self) -> int:
        """Of the artifacts' files that are as sealed."""
        return sum(task.bytes for task in self.sealed_target)

    @property
    def percent_read(self) -> float:
        """How much of the artifacts' bytes was read, right or wrong."""
        there = sum(task.bytes for task in self.tasks)
        read = sum(task.bytes for task in self.tasks if id(task) in self._complaints)
        return 100 * read / there if there else 100.0


SCHEMA = "corpusmill/verification/1"


def as_json(found: Verification, program: Mapping[str, Any]) -> dict[str, Any]:
    """For a report; the program's versions and host are as provenance has them."""
    scope, hub, sources = found.scope, found.hub, found.sources

    def files(tasks: Iterable[HashTask]) -> list[dict[str, Any]]:
        return [{"path": task.name, "bytes": task.bytes, "state": found.artifact_state(task)} for task in tasks]

    return {
        "schema": SCHEMA,
        "verdict": found.verdict,
        "folder": str(found.folder),
        "digest": found.chain.artifacts[0].manifest.digest,
        "scope": {
            "upstream": scope.root is not None,
            "content": scope.content or scope.sample is not None,
            "data": None if scope.root is None else str(scope.root),
            "sample": None if scope.sample is None else str(scope.sample),
            "seed": None if scope.sample is None else scope.sample.seed,
            "threads": scope.threads,
        },
        "findings": [
            {"path": str(finding.where), "what": finding.what, "artifact": finding.artifact}
            for finding in found.findings
        ],
        "files": len(found.tasks),
        "files_as_sealed": len(found.sealed_target),
        "bytes": sum(task.bytes for task in found.tasks),
        "bytes_as_sealed": found.bytes_checked,
        "percent_of_bytes_read": round(found.percent_read, 3),
        "contents": {
            "worked_out": len(found.contents),
            "as_the_digest_names": found.contents.count(None),
            "not_worked_out": found.unread_contents,
        },
        "artifacts": [
            _named(artifact)
            | {
                "folder": str(artifact.folder),
                "findings": sum(finding.artifact == artifact.manifest.digest for finding in found.findings),
                "files": files(task for task in found.tasks if task.owner == artifact.manifest.digest),
            }
            for artifact in found.chain.artifacts
        ],
        "hub": hub
        and {
            **{name: getattr(hub, name) for name in ("listed", "whole", "in_part", "not_looked_for")},
            "not_here": hub.unavailable,
            "files": files(hub.tasks),
        },
        "sources": sources
        and {
            "listed": sources.listed,
            "changed": [str(finding.where) for finding in sources.findings],
            "not_here": sources.unavailable,
            "files": files(sources.tasks),
        },
        "started_at_utc": found.started_at.isoformat(timespec="seconds"),
        "program": dict(program),
    }


def _named(artifact: Artifact) -> dict[str, str]:
    manifest = artifact.manifest
    return {"kind": manifest.kind, "name": manifest.name, "digest": manifest.digest}
