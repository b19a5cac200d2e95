"""The plan of a recipe: what is there of its artifacts, what the rest will cost and give, what speaks against it."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pipeline_assets.corpus.planning.estimate import Estimate, exactly, total
from pipeline_assets.corpus.planning.room import DiskUse, Room, disk_rooms, memory_room
from pipeline_assets.corpus.planning.split_forecast import Outlook
from pipeline_assets.corpus.planning.track_record import TrackRecord
from pipeline_assets.corpus.spine.engine import EngineSettings
from pipeline_assets.corpus.spine.inventory import Holding
from pipeline_assets.corpus.spine.usage import folder_bytes

_START_S = Estimate(1.5, 3, 8, "")  # of the command itself
_ARTIFACT_S = Estimate(0.5, 1.2, 3, "")  # of a run in Dagster and its checks: measured, see benchmarks/README.md
_CHECKED_BYTES_PER_S = 500e6
_WITH_MARGIN = 1.1  # of a snapshot that is to be enough: it is an estimate


@dataclass(frozen=True)
class PlanSettings:
    """Run settings that costs depend on.

    Attributes:
        record: what earlier builds showed; asked once the hub has answered, since the machine may have to be measured.
        root: the data root, below which sources of files lie.
    """

    record: Callable[[], TrackRecord]
    engine: EngineSettings
    fetch_threads: int = 8
    root: Path = Path()


@dataclass(frozen=True)
class TargetPlan:
    """One artifact of a recipe.

    Attributes:
        figures: planned, by the names of `outcome.FIGURES`; none where it is current, or only a manifest.
    """

    holding: Holding
    figures: Mapping[str, Estimate] = field(default_factory=dict)

    @property
    def is_current(self) -> bool:
        return self.holding.is_there

    @property
    def needs_replace(self) -> bool:
        """Whether something else is sealed in its place, which is only given up when told to."""
        return self.holding.sealed in ("stale", "damaged") and not self._is_of_members

    @property
    def _is_of_members(self) -> bool:
        return any(other.folder.parent == self.holding.target.folder for other in self.holding.target.upstream)

    def disk_use(self, root: Path) -> DiskUse:
        """What building it does to the disk."""
        unfinished = self.holding.unfinished
        left = sum(map(folder_bytes, unfinished.folders)) if unfinished else 0
        replaced = 0 if self._is_of_members else folder_bytes(root / self.holding.target.folder)
        nothing = exactly(0, "")
        return DiskUse(
            fetched=self.figures.get("bytes_fetched", nothing),
            peak=self.figures.get("peak_disk_bytes", nothing),
            sealed=self.figures.get("bytes", nothing),
            freed=replaced + left,
            adopted=left,
        )


@dataclass(frozen=True)
class Dump:
    """A dump's part of a sample."""

    name: str
    row_groups: int
    rows: int


@dataclass(frozen=True)
class Sample:
    """What is read of a dataset.

    Attributes:
        files, row_groups, rows: read.
        files_listed: all that the recipe's patterns match.
        row_groups_seen: all of the files whose footers were read.
    """

    files: int
    files_listed: int
    row_groups: int
    row_groups_seen: int
    rows: int
    dumps: Sequence[Dump]


@dataclass(frozen=True)
class Budget:
    """A token budget, and whether the corpus has enough for it.

    Attributes:
        amount: how much the recipe's snapshot takes, of which unit.
        taken: what that came to, of whole row groups.
    """

    name: str
    tokens: int
    available: Estimate
    outlook: Outlook
    is_all_there_is: bool
    amount: tuple[str, int]
    taken: int

    @property
    def is_met(self) -> bool:
        """As far as one can tell."""
        return self.outlook in ("met", "likely met")

    @property
    def fix(self) -> str:
        """What helps where it isn't."""
        if self.is_all_there_is:
            return "the dataset has no more: lower `megatron.token_budget`"
        unit, amount = self.amount
        enough = math.ceil(_WITH_MARGIN * self.taken * self.tokens / max(self.available.likely, 1))
        step = 10 ** max(len(str(enough)) - 2, 0)
        raised = f"raise `snapshot.amount.{unit}` from {amount:,} to {-(-enough // step) * step:,}"
        return f"{raised}, or lower `megatron.token_budget`"


@dataclass(frozen=True)
class RecipePlan:
    """The whole plan.

    Attributes:
        targets: upstream first.
        sample: None where nothing is read from a hub.
        fetched_bytes: what planning itself fetched: listing and footers.
    """

    targets: Sequence[TargetPlan]
    sample: Sample | None
    budgets: Sequence[Budget]
    fetched_bytes: int

    @property
    def to_build(self) -> list[TargetPlan]:
        return [plan for plan in self.targets if not plan.is_current]

    @property
    def missing_bytes(self) -> int:
        """What building will fetch."""
        return round(sum(plan.figures["bytes_fetched"].likely for plan in self._fetching))

    @property
    def fetch_seconds(self) -> Estimate | None:
        """None where something is to be fetched and no rate is known."""
        known = [plan.figures["fetch_seconds"] for plan in self._fetching if "fetch_seconds" in plan.figures]
        if len(known) < len(self._fetching):
            return None
        return total(known, known[0].basis if known else "nothing is to be fetched")

    @property
    def seconds(self) -> Estimate | None:
        """From the command to its end, but for fetching; None where all is built."""
        parts = [plan.figures["build_seconds"] for plan in self.to_build if "build_seconds" in plan.figures]
        if not parts:
            return None
        stored = total((plan.figures["bytes"] for plan in self.to_build if "bytes" in plan.figures), "")
        checks = stored.times(exactly(1 / _CHECKED_BYTES_PER_S, ""))
        runs = _ARTIFACT_S.times(exactly(len(self.to_build), ""))
        return total([*parts, _START_S, runs, checks], parts[0].basis)

    @property
    def _fetching(self) -> list[TargetPlan]:
        return [plan for plan in self.to_build if "bytes_fetched" in plan.figures]

    def rooms(self, root: Path, cache: Path) -> list[Room]:
        """What is needed of each disk, then of memory by the greediest artifact; nothing where all is built."""
        peaks = [plan.figures["peak_memory_bytes"] for plan in self.to_build if "peak_memory_bytes" in plan.figures]
        memory = [memory_room(max(peaks, key=lambda peak: peak.high))] if peaks else []
        uses = [plan.disk_use(root) for plan in self.to_build]
        return [*disk_rooms(uses, root, cache), *memory] if uses else []
