"""What a verification was asked for, what it checked, and what it found."""

import datetime
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pipeline_assets.corpus.readers.held import CHANGED, CURE, HeldOfFolders, HeldOfHub
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.chain import Chain, Finding
from pipeline_assets.corpus.spine.rehash import HashResult, HashTask
from pipeline_assets.corpus.spine.sample import Sample

if TYPE_CHECKING:
    from pipeline_assets.corpus.verification.contents import ContentResult
    from pipeline_assets.corpus.verification.proof import ShardProof

Verdict = Literal["intact", "intact of a sample", "source changed", "incomplete", "damaged"]
State = Literal["as_sealed", "read_before", "not_read", "damaged"]


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
class Proven:
    """What was proven of an artifact's documents, and how; `why_not` says why nothing was."""

    artifact: Artifact
    how: str = ""
    shards: list["ShardProof"] = field(default_factory=list)
    shards_in_all: int = 0
    why_not: str | None = None

    @property
    def documents(self) -> int:
        """Found to be as they should be."""
        return sum(shard.documents for shard in self.shards)

    @property
    def not_here(self) -> int:
        """Drawn, but what they were made from isn't here."""
        return sum(shard.not_here for shard in self.shards)


@dataclass
class Verification:
    """What was checked, and what was found.

    Attributes:
        tasks: one for every file of the artifacts that is there in its size.
        findings: all damage, and what is missing.
        out_of_place: how many of the findings a look at the artifacts told: missing, of another size, not named.
        hub, sources: what the hub's cache and the folders of sources hold of the files that the chain was made from;
            None where upstream was not asked for.
        results: of the tasks whose files were read, in the order of the tasks; with a sample they are fewer.
        contents: of the files whose content was worked out again.
        unread_contents: files that were read as stored, and have a content that was not worked out.
        proofs: of documents, where a sample was asked for with upstream.
    """

    folder: Path
    scope: Scope
    chain: Chain
    tasks: list[HashTask]
    findings: list[Finding]
    out_of_place: int
    hub: HeldOfHub | None
    sources: HeldOfFolders | None
    started_at: datetime.datetime
    results: list[HashResult] = field(default_factory=list)
    contents: list["ContentResult"] = field(default_factory=list)
    unread_contents: int = 0
    proofs: list[Proven] = field(default_factory=list)
    seconds: float = 0.0
    reading_seconds: float = 0.0

    def __post_init__(self) -> None:
        self._result_of = {id(result.task): result for result in self.results}

    def take(self, results: Iterable[HashResult]) -> None:
        """Results of tasks, in any order; complaints become findings."""
        self._result_of |= {id(result.task): result for result in results}
        self.results = [self._result_of[id(task)] for task in self.all_tasks if id(task) in self._result_of]
        for part, cure in zip(self.parts, ("", f"; {CURE}", f"; {CHANGED}"), strict=True):
            for task in part:
                result = self._result_of.get(id(task))
                if result is not None and result.complaint is not None:
                    finding = Finding(task.paths[0], result.complaint + cure, task.owner)
                    self.findings.append(finding)
                    if self.sources is not None and part is self.sources.tasks:
                        self.sources.findings.append(finding)

    def state_of(self, task: HashTask) -> State:
        """What is known of a file."""
        result = self._result_of.get(id(task))
        if result is None:
            return "not_read"
        if result.complaint is not None:
            return "damaged"
        return "as_sealed" if result.found_at is None else "read_before"

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
        return [task for task in self.all_tasks if id(task) not in self._result_of]

    @property
    def bytes_held(self) -> int:
        """Of the artifacts' files that are as sealed."""
        held = (self._result_of.get(id(task)) for task in self.tasks)
        return sum(result.task.bytes for result in held if result is not None and result.complaint is None)

    @property
    def bytes_read(self) -> int:
        """By this process."""
        return sum(result.bytes_read for result in self.results)

    @property
    def bytes_before(self) -> int:
        """By a process that was interrupted, and not again."""
        return sum(result.task.bytes for result in self.results if result.found_at is not None)

    @property
    def percent_read(self) -> float:
        """How much of the artifacts' bytes was read, whatever came of it."""
        there = sum(task.bytes for task in self.tasks)
        read = sum(task.bytes for task in self.tasks if id(task) in self._result_of)
        return 100 * read / there if there else 100.0

    @property
    def documents_before(self) -> int:
        """Proven by a process that was interrupted."""
        shards = [shard for proven in self.proofs for shard in proven.shards]
        return sum(shard.documents for shard in shards if shard.found_at is not None)

    @property
    def known_since(self) -> int | None:
        """When the oldest of what an interrupted process found was found, in seconds since 1970."""
        shards = [shard.found_at for proven in self.proofs for shard in proven.shards]
        times = [result.found_at for result in self.results] + shards
        return min((time for time in times if time is not None), default=None)
