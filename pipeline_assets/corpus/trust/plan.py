"""The plan of a recipe: artifacts that are there, what building the others takes, and what speaks against it.

One walk over the targets, upstream first. It tells what a listing, footers and the recipe do: files and rows that are
read, bytes to fetch, tokens to write, and whether disks have room for these.
"""

import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline_assets.corpus.recipes.kind import planned_figures
from pipeline_assets.corpus.recipes.run import Run
from pipeline_assets.corpus.spine.artifact import read_manifest
from pipeline_assets.corpus.spine.errors import UsageError
from pipeline_assets.corpus.spine.inventory import ArtifactStatus
from pipeline_assets.corpus.spine.manifest import Manifest, total
from pipeline_assets.corpus.spine.target import Target
from pipeline_assets.corpus.spine.usage import folder_bytes
from pipeline_assets.corpus.trust.figures import Listing, Planned, Size, size_of_inputs, total_size
from pipeline_assets.systems.registry import KINDS

_TOKEN_BYTES = 4  # at most: ids of a vocabulary of up to 65,536 tokens take 2


@dataclass(frozen=True)
class Room:
    """Bytes that are needed of the disk that a folder lies on, as far as they are known, and what is free there."""

    where: Path
    needed: int
    free: int

    @property
    def fits(self) -> bool:
        return self.needed <= self.free


def disk_rooms(root: Path, cache: Path, written: int, fetched: int) -> list[Room]:
    """Room for what is written below a data root and fetched into a cache; of two disks where the cache has its own."""
    (device, free), (cache_device, cache_free) = _disk(root), _disk(cache)
    if device == cache_device:
        return [Room(root, written + fetched, free)]
    return [Room(root, written, free), Room(cache, fetched, cache_free)]


def _disk(path: Path) -> tuple[int, int]:
    """(device, free bytes) of the disk that a path lies on, or will lie on."""
    path = path.absolute()
    folder = next(folder for folder in [path, *path.parents] if folder.exists())
    return folder.stat().st_dev, shutil.disk_usage(folder).free


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
        most: tokens that the text can have, which is one a byte, if they are too few; else None.
        fix: what helps where they are too few.
    """

    name: str
    tokens: int
    most: float | None
    fix: str

    @property
    def is_met(self) -> bool:
        """As far as one can tell."""
        return self.most is None


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
        is_of_members = any(one.folder.parent == self.status.target.folder for one in self.status.target.upstream)
        return self.status.sealed in ("stale", "damaged") and not is_of_members

    @property
    def bytes_written(self) -> int:
        """Of its tokens, beyond what a crash left of them."""
        unfinished, tokens = self.status.unfinished, self.figures.get("tokens")
        written = 0 if tokens is None else _TOKEN_BYTES * round(tokens.value)
        return max(0, written - sum(map(folder_bytes, unfinished.folders if unfinished is not None else ())))


@dataclass(frozen=True)
class RecipePlan:
    """The plans of all artifacts, upstream first; the bytes that planning itself fetched, listing and footers, and
    those that building will; the rooms of each disk, none where all is built.
    """

    artifacts: Sequence[ArtifactPlan]
    fetched_bytes: int
    missing_bytes: int
    rooms: Sequence[Room]

    @property
    def to_build(self) -> list[ArtifactPlan]:
        return [plan for plan in self.artifacts if not plan.status.is_there]

    @property
    def budgets(self) -> list[Budget]:
        return [plan.budget for plan in self.artifacts if plan.budget is not None]


def plan_recipe(held: Sequence[ArtifactStatus], run: Run) -> RecipePlan:
    """The plan of a recipe whose artifacts are held as `artifact_statuses` tells; what is there costs nothing. Raises
    InputError: from the hub, which is asked only of what is to be built; UsageError: no file or column as the recipe
    names it, or nothing is sealed where something is said to be.
    """
    hub = run.hub_for("a recipe")
    before, walk = hub.traffic.bytes, _Walk(run)
    artifacts = [walk.planned(status) for status in held]
    missing, written = sum(walk.missing.values()), sum(plan.bytes_written for plan in artifacts)
    is_built = all(status.is_there for status in held)
    rooms = [] if is_built else disk_rooms(run.root, hub.cache, written, missing)
    return RecipePlan(artifacts, hub.traffic.bytes - before, missing, rooms)


@dataclass(frozen=True)
class _Known:
    """The most text that an artifact can hold, and the sample of the hub dataset that it is made from, if of one."""

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
        list_files = KINDS[target.kind].listing
        listing = Listing() if list_files is None else list_files(target, self._run)
        figures = planned_figures(target, listing.inputs) | self._fetching(listing)
        most = total_size(one.most for one in upstream)
        if listing.inputs:
            most = Size(listing.text_bytes, size_of_inputs(listing.inputs).rows)
        sample = _sample(target.recipe, listing.inputs, listing.text_bytes)
        known = self._known[target.role] = _Known(most, sample or _sample_of(upstream))
        return ArtifactPlan(status, figures, sample, _budget(target, known))

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
        return {"bytes_fetched": Planned(sum(missing.values()), "less what the cache has")}


def _budget(target: Target, known: _Known) -> Budget | None:
    limit_of, most = KINDS[target.kind].limit, None
    limit = None if limit_of is None else limit_of(target.recipe)
    if limit is None or limit.tokens is None:
        return None
    if known.most.bytes is not None and known.most.rows is not None:
        bound = limit.passes * (known.most.bytes + known.most.rows)  # a token has a byte or more, or ends a document
        most = bound if bound < limit.tokens else None
    fix = _fix(limit.tokens, most, known.sample, f"lower `{limit.key}`")
    return Budget(target.partition or target.kind, limit.tokens, most, fix)


def _sealed(manifest: Manifest, upstream: Sequence[_Known]) -> _Known:
    counts, inputs = manifest.identity.counts, manifest.identity.inputs
    text, read = counts.get("text_bytes"), manifest.provenance.get("source_text_bytes")
    is_told = isinstance(text, int)
    most = Size(text, total(counts.get("documents"))) if is_told else total_size(one.most for one in upstream)
    return _Known(most, _sample(manifest.identity.recipe, inputs, read) or _sample_of(upstream))


def _sample_of(upstream: Sequence[_Known]) -> HubSample | None:
    return next((one.sample for one in upstream if one.sample is not None), None)


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


def _fix(tokens: int, most: float | None, sample: HubSample | None, lower: str) -> str:
    if sample is None or most is None:
        return lower
    if sample.is_all_there_is or sample.whole <= sample.taken:
        return f"the dataset has no more: {lower}"
    enough = math.ceil(sample.taken * tokens / max(most, 1))
    if enough > sample.whole:
        return f"the dataset has only {sample.whole:,} {sample.unit} or so in all: {lower}"
    return f"raise `amount.{sample.unit}` from {sample.asked:,} to at least {enough:,}, or {lower}"
