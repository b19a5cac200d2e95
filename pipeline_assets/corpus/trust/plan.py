"""The plan of a recipe: artifacts that are there, what building the others takes and gives, and what speaks against it.

One walk over the targets, upstream first. What goes into an artifact is known exactly where files are listed, or where
its upstream is sealed; what its build takes and gives is in proportion to that, as earlier builds in the data root
showed. What a build needs of the disk and of memory is held against what is free.
"""

import contextlib
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline_assets.corpus.recipes.kind import forecast
from pipeline_assets.corpus.recipes.run import Run
from pipeline_assets.corpus.spine.artifact import read_manifest
from pipeline_assets.corpus.spine.errors import UsageError
from pipeline_assets.corpus.spine.inventory import ArtifactStatus
from pipeline_assets.corpus.spine.manifest import Manifest
from pipeline_assets.corpus.spine.target import Target
from pipeline_assets.corpus.spine.usage import folder_bytes
from pipeline_assets.corpus.trust.figures import Limit, Listing, Planned, Size, size_of, size_of_inputs, total_size
from pipeline_assets.systems.registry import KINDS

_MEMORY = "memory"
_MEMINFO = Path("/proc/meminfo")
_MEMORY_LIMIT = Path("/sys/fs/cgroup/memory.max")


@dataclass(frozen=True)
class Room:
    """What is needed at the peak beyond what is taken already, in bytes, of the disk that a folder lies on or of
    `memory`; what is free, if the system tells; and what of a disk is kept when all is built.
    """

    where: str
    needed: float
    free: int | None
    kept: float | None = None

    @property
    def fits(self) -> bool:
        """As far as one can tell."""
        return self.free is None or self.needed <= self.free

    @property
    def fix(self) -> str:
        """What helps where it doesn't fit."""
        return "take fewer workers" if self.where == _MEMORY else "free some, or give another --data"


@dataclass(frozen=True)
class DiskUse:
    """What building one artifact does to a disk, in bytes.

    Attributes:
        fetched: into the cache, where it stays.
        peak: of its building folder, beyond what a crash left of this very artifact.
        freed: of what it replaces and of what a crash left: at the end, since two versions lie side by side until the
            new one is sealed.
    """

    fetched: float
    peak: float
    sealed: float
    freed: int = 0


def disk_rooms(uses: Sequence[DiskUse], root: Path, cache: Path) -> list[Room]:
    """What artifacts that are built one after the other need at the worst moment; of two disks where the cache has its
    own.
    """
    (device, free), (cache_device, cache_free) = _disk(root), _disk(cache)
    is_apart = device != cache_device
    taken = most = 0.0
    for use in uses:
        taken += 0 if is_apart else use.fetched
        most = max(most, taken + use.peak)
        taken += use.sealed - use.freed
    rooms = [Room(str(root), max(most, taken), free, taken)]
    if is_apart:
        fetched = sum(use.fetched for use in uses)
        rooms.append(Room(str(cache), fetched, cache_free, fetched))
    return rooms


def _disk(path: Path) -> tuple[int, int]:
    """(device, free bytes) of the disk that a path lies on, or will lie on."""
    path = path.absolute()
    folder = next(folder for folder in [path, *path.parents] if folder.exists())
    return folder.stat().st_dev, shutil.disk_usage(folder).free


def memory_room(needed: float) -> Room:
    """Against what this machine can give now, and this container may have."""
    limits = []
    with contextlib.suppress(OSError, ValueError):
        [line] = [line for line in _MEMINFO.read_text().splitlines() if line.startswith("MemAvailable:")]
        limits.append(int(line.split()[1]) * 1024)
    with contextlib.suppress(OSError, ValueError):  # `max` is no number: no limit
        limits.append(int(_MEMORY_LIMIT.read_text()))
    return Room(_MEMORY, needed, min(limits, default=None))


_WITH_MARGIN = 1.1  # of a sample that is to be enough: how many tokens a text has is not known exactly


@dataclass(frozen=True)
class HubSample:
    """What is read of a hub dataset: how much of a unit the recipe asked for, what was taken for it, in whole row
    groups, and the whole that the dataset has, by the sizes of its files where not all are read.
    """

    files: int
    files_listed: int
    row_groups: int
    rows: int
    unit: str
    asked: int
    taken: int
    whole: int

    @property
    def is_all_there_is(self) -> bool:
        return self.taken < self.asked


@dataclass(frozen=True)
class Budget:
    """The tokens that a recipe asks for, and whether there is text for them.

    Attributes:
        available: tokens there are, as earlier builds showed; else the most that the text can have, which is one a
            byte; None where neither is known.
        fix: what helps where they are too few.
    """

    name: str
    tokens: int
    available: float | None
    fix: str

    @property
    def is_met(self) -> bool:
        """As far as one can tell."""
        return self.available is None or self.available >= self.tokens


@dataclass(frozen=True)
class ArtifactPlan:
    """One artifact of a recipe; where it isn't there, its planned figures by their names, the sample of a hub dataset
    that it reads, if it reads one, and its budget, if the recipe has one.
    """

    status: ArtifactStatus
    figures: Mapping[str, Planned] = field(default_factory=dict)
    sample: HubSample | None = None
    budget: Budget | None = None

    @property
    def needs_replace(self) -> bool:
        """Whether another artifact is sealed in its place, which only `--replace` gives up."""
        return self.status.sealed in ("stale", "damaged") and not self._is_of_members

    @property
    def _is_of_members(self) -> bool:
        return any(other.folder.parent == self.status.target.folder for other in self.status.target.upstream)

    def figure(self, name: str) -> float:
        """0 where it isn't known."""
        return self.figures[name].value if name in self.figures else 0

    def disk_use(self, root: Path) -> DiskUse:
        """What building it does to the disk, as far as it is known."""
        unfinished, sealed = self.status.unfinished, self.figure("bytes")
        left = sum(map(folder_bytes, unfinished.folders)) if unfinished else 0
        is_replaced = self.status.sealed != "missing" and not self._is_of_members
        replaced = folder_bytes(root / self.status.target.folder) if is_replaced else 0
        peak = max(self.figure("peak_disk_bytes"), sealed) - left
        return DiskUse(self.figure("bytes_fetched"), peak, sealed, replaced + left)


@dataclass(frozen=True)
class RecipePlan:
    """The plans of all artifacts, upstream first; the bytes that planning itself fetched, listing and footers, and
    those that building will; how long these take, None where nobody knows how fast the network is; the rooms of each
    disk, then of memory, none where all is built.
    """

    artifacts: Sequence[ArtifactPlan]
    fetched_bytes: int
    missing_bytes: int
    fetch_seconds: Planned | None
    rooms: Sequence[Room]

    @property
    def to_build(self) -> list[ArtifactPlan]:
        return [plan for plan in self.artifacts if not plan.status.is_there]

    @property
    def budgets(self) -> list[Budget]:
        return [plan.budget for plan in self.artifacts if plan.budget is not None]

    @property
    def gpu_hours(self) -> float:
        """Of all that is to be built, as far as it is known; 0 where no GPU is used."""
        return sum(plan.figure("gpu_seconds") for plan in self.to_build) / 3600

    def seconds(self, name: str) -> float | None:
        """Of all that is to be built, CPU or wall; None where some are not known, or all is built."""
        known = [plan.figures[name].value for plan in self.to_build if name in plan.figures]
        return sum(known) if known and len(known) == len(self.to_build) else None


def plan_recipe(held: Sequence[ArtifactStatus], run: Run) -> RecipePlan:
    """The plan of a recipe whose artifacts are held as `artifact_statuses` tells; what is there costs nothing. Raises
    InputError: from the hub, which is asked only of what is to be built; UsageError: no file or column as the recipe
    names it, or nothing is sealed where something is said to be.
    """
    hub = run.hub_for("a recipe")
    before, walk = hub.traffic.bytes, _Walk(run)
    artifacts = [walk.planned(status) for status in held]
    missing = sum(walk.missing.values())
    to_build = [plan for plan in artifacts if not plan.status.is_there]
    rooms = disk_rooms([plan.disk_use(run.root) for plan in to_build], run.root, hub.cache) if to_build else []
    if memory := max((plan.figure("peak_memory_bytes") for plan in to_build), default=0):
        rooms.append(memory_room(memory))
    return RecipePlan(artifacts, hub.traffic.bytes - before, missing, run.record.fetch_seconds(missing), rooms)


@dataclass(frozen=True)
class _Known:
    """What an artifact that others are made from is likely to hold, and can hold at most; and the sample of the hub
    dataset that it is made from, if it is of one.
    """

    size: Size
    most: Size
    sample: HubSample | None


class _Walk:
    """Targets in their order, what is known of those before, and the bytes that are missing of each file."""

    def __init__(self, run: Run) -> None:
        self.missing: dict[str, int] = {}
        self._run = run
        self._known: dict[str, _Known] = {}

    def planned(self, status: ArtifactStatus) -> ArtifactPlan:
        """The plan of one artifact, whose upstream was planned before."""
        target = status.target
        upstream = [self._upstream(one) for one in target.upstream]
        if status.is_there and status.manifest is not None:
            self._known[target.role] = _sealed(status.manifest, upstream)
            return ArtifactPlan(status)
        kind = KINDS[target.kind]
        listing = kind.listing(target, self._run) if kind.listing is not None else Listing()
        limit = kind.limit(target.recipe) if kind.limit is not None else None
        if listing.inputs:
            size = size_of_inputs(listing.inputs)
            most = Size(listing.text_bytes, size.rows)
        else:
            worked = [one for one, made in zip(upstream, target.upstream, strict=True) if KINDS[made.kind].is_worked_on]
            size, most = total_size(one.size for one in worked), total_size(one.most for one in worked)
        figures = forecast(target, size, limit, self._run) | self._fetching(listing)
        sample = _sample(target.recipe, listing.inputs, listing.text_bytes)
        known = _Known(_held(figures, size), most, sample or _sample_of(upstream))
        self._known[target.role] = known
        return ArtifactPlan(status, figures, sample, self._budget(target, limit, size, known))

    def _upstream(self, target: Target) -> _Known:
        """Raises UsageError where it should lie there already, and doesn't."""
        if target.role not in self._known:
            manifest = read_manifest(self._run.root / target.folder)
            if manifest is None:
                raise UsageError("nothing is sealed there", target.folder, "make it first, or correct the recipe")
            self._known[target.role] = _sealed(manifest, ())
        return self._known[target.role]

    def _fetching(self, listing: Listing) -> dict[str, Planned]:
        """What the artifact fetches that none before it does."""
        if listing.missing is None:
            return {}
        missing = {name: count for name, count in listing.missing.items() if name not in self.missing}
        self.missing |= missing
        count = sum(missing.values())
        seconds = self._run.record.fetch_seconds(count) if count else None
        fetched = {"bytes_fetched": Planned(count, "less what the cache has")}
        return fetched if seconds is None else fetched | {"fetch_seconds": seconds}

    def _budget(self, target: Target, limit: Limit | None, size: Size, known: _Known) -> Budget | None:
        if limit is None or limit.tokens is None:
            return None
        most, available = known.most, self._run.record.tokens_within(target.kind, target.partition, size)
        if available is None and most.bytes is not None and most.rows is not None:
            bound = limit.passes * (most.bytes + most.rows)  # a token has a byte or more, or ends a document
            available = bound if bound < limit.tokens else None
        fix = _fix(limit.tokens, available, known.sample, f"lower `{limit.key}`")
        return Budget(target.partition or target.kind, limit.tokens, available, fix)


def _sealed(manifest: Manifest, upstream: Sequence[_Known]) -> _Known:
    identity, size = manifest.identity, size_of(manifest)
    text, read = identity.counts.get("text_bytes"), manifest.provenance.get("source_text_bytes")
    most = Size(text, size.rows) if isinstance(text, int) else total_size(one.most for one in upstream)
    return _Known(size, most, _sample(identity.recipe, identity.inputs, read) or _sample_of(upstream))


def _sample_of(upstream: Sequence[_Known]) -> HubSample | None:
    return next((one.sample for one in upstream if one.sample is not None), None)


def _held(figures: Mapping[str, Planned], size: Size) -> Size:
    """What an artifact will hold: text, else files; of one that only lists what goes into it, that."""
    held = next((figures[name].value for name in ("text_bytes", "bytes") if name in figures), None)
    if "documents" in figures:
        return Size(held, figures["documents"].value)
    return size if held is None else Size(held)


def _sample(recipe: Mapping[str, Any], inputs: Sequence[Mapping[str, Any]], text_bytes: int | None) -> HubSample | None:
    """Of the row groups that inputs name; None where they name none, or the recipe asks for no amount."""
    read = [entry for entry in inputs if "row_groups" in entry]
    amounts = [(unit, count) for unit, count in recipe.get("amount", {}).items() if count is not None]
    size = size_of_inputs(inputs)
    if not read or not amounts or not size.bytes:
        return None
    [(unit, asked)] = amounts
    rows = round(size.rows or 0)
    taken = {"files": len(read), "documents": rows, "text_bytes": text_bytes}[unit]
    taken = asked if taken is None else taken
    whole = len(inputs) if unit == "files" else round(taken * sum(entry["bytes"] for entry in inputs) / size.bytes)
    groups = sum(len(entry["row_groups"]) for entry in read)
    return HubSample(len(read), len(inputs), groups, rows, unit, asked, taken, taken if taken < asked else whole)


def _fix(tokens: int, available: float | None, sample: HubSample | None, lower: str) -> str:
    if sample is None or available is None:
        return lower
    if sample.is_all_there_is or sample.whole <= sample.taken:
        return f"the dataset has no more: {lower}"
    enough = math.ceil(_WITH_MARGIN * sample.taken * tokens / max(available, 1))
    step = 10 ** max(len(str(enough)) - 2, 0)
    enough = -(-enough // step) * step
    if enough > sample.whole:
        return f"the dataset has only {sample.whole:,} {sample.unit} or so in all: {lower}"
    return f"raise `amount.{sample.unit}` from {sample.asked:,} to {enough:,}, or {lower}"
