"""The plan of a recipe: artifacts that are there, what building the others takes, and what speaks against it.

One walk over the targets, upstream first. It tells what a listing, footers and the recipe do: files and rows that are
read, bytes to fetch, tokens to write, and whether disks have room for these.
"""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline_assets.build.inventory import ArtifactStatus
from pipeline_assets.build.kind import planned_figures
from pipeline_assets.build.run import Run
from pipeline_assets.corpus.readers.listing import Listing, Planned
from pipeline_assets.spine.artifact import read_manifest
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.usage import folder_bytes

_TOKEN_BYTES = 4  # at most: ids of a vocabulary of up to 65,536 tokens take 2


@dataclass(frozen=True)
class CapacityCheck:
    """Bytes that are needed of the disk that a folder lies on, as far as they are known, and what is free there."""

    where: Path
    needed: int
    free: int

    @property
    def fits(self) -> bool:
        return self.needed <= self.free


def check_disks(root: Path, cache: Path, written: int, fetched: int) -> list[CapacityCheck]:
    """Room for what is written below a data root and fetched into a cache; of two disks where the cache has its own."""
    (device, free), (cache_device, cache_free) = _disk(root), _disk(cache)
    if device == cache_device:
        return [CapacityCheck(root, written + fetched, free)]
    return [CapacityCheck(root, written, free), CapacityCheck(cache, fetched, cache_free)]


def _disk(path: Path) -> tuple[int, int]:
    """(device, free bytes) of the disk that a path lies on, or will lie on."""
    path = path.absolute()
    folder = next(folder for folder in [path, *path.parents] if folder.exists())
    return folder.stat().st_dev, shutil.disk_usage(folder).free


@dataclass(frozen=True)
class HubSample:
    """What is read of a hub dataset: files of those that are listed, whole row groups of them, and their rows."""

    files: int
    files_listed: int
    row_groups: int
    rows: int

    @classmethod
    def from_hub(cls, inputs: Sequence[Mapping[str, Any]]) -> "HubSample | None":
        """The sample that inputs name; None if they name no row groups."""
        groups = [entry["row_groups"] for entry in inputs if "row_groups" in entry]
        rows = sum(group["rows"] for of_file in groups for group in of_file)
        return cls(len(groups), len(inputs), sum(map(len, groups)), rows) if groups else None


@dataclass(frozen=True)
class ArtifactPlan:
    """One artifact of a recipe; where it isn't there, its planned figures by their names, and the sample of a hub
    dataset that it reads, if it reads one.
    """

    status: ArtifactStatus
    figures: Mapping[str, Planned] = field(default_factory=dict)
    sample: HubSample | None = None

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
    rooms: Sequence[CapacityCheck]

    @property
    def to_build(self) -> list[ArtifactPlan]:
        return [plan for plan in self.artifacts if not plan.status.matches_recipe]


def plan_recipe(held: Sequence[ArtifactStatus], run: Run) -> RecipePlan:
    """The plan of a recipe whose artifacts are held as `artifact_statuses` tells; what is there costs nothing. Raises
    InputError: from the hub, which is asked only of what is to be built; UsageError: no file or column as the recipe
    names it, or nothing is sealed where something is said to be.
    """
    hub, missing = run.require_hub("a recipe"), dict[str, int]()
    before = hub.traffic.bytes
    artifacts = [_planned(status, run, missing) for status in held]
    fetched, written = sum(missing.values()), sum(plan.bytes_written for plan in artifacts)
    is_built = all(status.matches_recipe for status in held)
    rooms = [] if is_built else check_disks(run.root, hub.cache, written, fetched)
    return RecipePlan(artifacts, hub.traffic.bytes - before, fetched, rooms)


def _planned(status: ArtifactStatus, run: Run, missing: dict[str, int]) -> ArtifactPlan:
    """The plan of one artifact; `missing` are the bytes to fetch by file, to which its own are added."""
    target = status.target
    for one in target.upstream:
        if one.is_external and read_manifest(run.root / one.folder) is None:
            raise UsageError("nothing is sealed there", one.folder, "make it first, or correct the recipe")
    if status.matches_recipe:
        return ArtifactPlan(status)
    list_files = target.kind.listing
    listing = Listing() if list_files is None else list_files(target, run)
    figures = planned_figures(target, listing.inputs)
    if listing.missing_bytes is not None:
        more = {name: count for name, count in listing.missing_bytes.items() if name not in missing}
        missing |= more
        figures["bytes_fetched"] = Planned(sum(more.values()), "excluding cached bytes")
    return ArtifactPlan(status, figures, HubSample.from_hub(listing.inputs))
