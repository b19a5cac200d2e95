"""What lies under a data root: the state of every artifact that is asked for, and what nobody asks for. Only read.

Nothing here takes part in recovery or writes a byte. Whether a builder lives is asked of its lock by a shared try that
is let go at once, and only where a building folder lies; files are held against the sizes of the manifest, not hashed.
"""

import contextlib
import datetime
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pipeline_assets.build.target import State, Target
from pipeline_assets.spine.artifact import Artifact, CheckResult, try_read_manifest
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.lineage import Lineage
from pipeline_assets.spine.lock import Builder, lock_owner
from pipeline_assets.spine.manifest import FILE_NAME, Manifest, total
from pipeline_assets.spine.staging import PLAN, RECEIPTS, leftover_target, numbered, staging_folders

Condition = Literal["current", "failed", "stale", "damaged", "missing", "building", "interrupted"]


@dataclass(frozen=True)
class PartialBuild:
    """What building folders hold, or folders that a seal moved aside.

    Attributes:
        folders: all of them; the other attributes are of the last.
        finished_shards: by stage, in the order of their names.
        last_write: the latest trace of a builder.
        is_sealing: whether all is built and only its seal was cut short.
        builder: who is at work, None where nobody is.
    """

    folders: Sequence[Path]
    finished_shards: Mapping[str, int]
    last_write: datetime.datetime
    is_sealing: bool
    builder: Builder | None


@dataclass(frozen=True)
class Size:
    """How much a sealed artifact holds; None where its manifest counts no such thing, or nothing is stored."""

    documents: int | None = None
    tokens: int | None = None
    bytes: int | None = None


@dataclass(frozen=True)
class ArtifactStatus:
    """One artifact that is asked for.

    Attributes:
        condition: of the build if one is under way or was interrupted, else of what is sealed. What a crash left beside
            an artifact that is there as asked is no build: nothing will go on from it.
        sealed: the state of the sealed artifact, even while another is being built beside it.
        reason: why it is failed, stale, damaged or missing; None where it is current.
        manifest: None where nothing readable is sealed.
        checks: what they said of what is sealed.
    """

    target: Target
    condition: Condition
    sealed: State
    reason: str | None
    manifest: Manifest | None
    size: Size
    sealed_at: datetime.datetime | None
    unfinished: PartialBuild | None
    checks: tuple[CheckResult, ...] = ()

    @property
    def matches_recipe(self) -> bool:
        """Whether the sealed artifact is as asked, passed its checks or not: it isn't built again."""
        return self.sealed in ("current", "failed")


@dataclass(frozen=True)
class Orphan:
    """An artifact that no recipe asks for; `digest` and `name` are None where the manifest can't be read (`damage`)."""

    folder: Path
    name: str | None = None
    digest: str | None = None
    sealed_at: datetime.datetime | None = None
    size: Size = Size()
    damage: str | None = None


def artifact_statuses(root: Path, targets: Sequence[Target]) -> list[ArtifactStatus]:
    """The state of each artifact of a recipe, in the order of `targets`: upstream first.

    What is made from an artifact that is stale or damaged, or that a check holds back, is stale too, though its own
    manifest still fits.
    """
    states: dict[str, State] = {}
    found = []
    folders = {target.folder.parent for target in targets}
    beside = [(folder, path) for folder in folders if (root / folder).is_dir() for path in (root / folder).iterdir()]
    left = {folder / place.name for folder, path in beside if (place := leftover_target(path)) is not None}
    for target in targets:
        status = _status(root, target, states, target.folder in left)
        states[target.role] = status.sealed
        found.append(status)
    return found


def orphans(lineage: Lineage, targets: Sequence[Target]) -> list[Orphan]:
    """Sealed artifacts that no target of any known recipe names, by folder."""
    asked = {lineage.root / target.folder for target in targets}
    found = [Orphan(folder, damage=error.what) for folder, error in lineage.unreadable.items() if folder not in asked]
    for folder, one in lineage.sealed.items():
        if folder not in asked:
            found.append(Orphan(folder, one.name, one.digest, _sealed_at(one.provenance), _size(folder, one)))
    return sorted(found, key=lambda one: one.folder.parts)


def _status(root: Path, target: Target, upstream: Mapping[str, State], is_unsettled: bool) -> ArtifactStatus:
    """`is_unsettled` tells whether a build, or what is left of one, lies beside it; folders of thousands are listed
    once.
    """
    place = root / target.folder
    unfinished = _unfinished(place) if is_unsettled else None
    sealed, words = target.state(root)
    is_there, reason = sealed in ("current", "failed"), None if sealed == "current" else words
    if sealed == "current":
        worse = [other for other in target.upstream if upstream.get(other.role) in ("failed", "stale", "damaged")]
        if worse:
            sealed, reason = "stale", f"{worse[0].role} {worse[0].name} is {upstream[worse[0].role]}"
    manifest = None if sealed == "missing" else try_read_manifest(place)
    condition: Condition = sealed
    if unfinished is not None and (unfinished.builder is not None or not is_there):
        condition = "interrupted" if unfinished.builder is None else "building"
    return ArtifactStatus(
        target=target,
        condition=condition,
        sealed=sealed,
        reason=reason,
        manifest=manifest,
        size=_size(place, manifest),
        sealed_at=_sealed_at(manifest.provenance) if manifest is not None else None,
        unfinished=unfinished,
        checks=target.results(root, manifest) if manifest is not None else (),
    )


def _unfinished(place: Path) -> PartialBuild | None:
    """What a builder has in hand or left behind. The folders are listed again after the lock was asked: a build that
    ended in between is no interrupted one.
    """
    if not _partial_folders(place):
        return None
    builder = lock_owner(place)
    folders = _partial_folders(place)
    if not folders:
        return None
    newest = folders[-1]
    shards = dict(Counter(receipt.parent.name for receipt in sorted((newest / RECEIPTS).glob("*/*.json"))))
    is_sealing = (newest / FILE_NAME).exists() or not (newest / PLAN).exists()
    return PartialBuild(folders, shards, _last_write(newest), is_sealing, builder)


def _partial_folders(place: Path) -> list[Path]:
    """Building folders, oldest first; where there are none, folders that a seal moved aside and didn't remove."""
    return staging_folders(place) or numbered(place, "old")


def _last_write(folder: Path) -> datetime.datetime:
    times = [0.0]
    for path in (folder, folder / PLAN, *(folder / RECEIPTS).glob("*"), *(folder / RECEIPTS).glob("*/*.json")):
        with contextlib.suppress(FileNotFoundError):  # a live builder moves its folder
            times.append(path.stat().st_mtime)
    return datetime.datetime.fromtimestamp(max(times), datetime.UTC)


def _sealed_at(provenance: Mapping[str, Any]) -> datetime.datetime | None:
    """When a build ended, as its provenance tells; None where it doesn't, since no digest covers it."""
    try:
        started = datetime.datetime.fromisoformat(provenance["started_at_utc"]).astimezone(datetime.UTC)
        return started + datetime.timedelta(seconds=provenance["seconds"])
    except (KeyError, TypeError, ValueError):
        return None


def _size(folder: Path, manifest: Manifest | None) -> Size:
    if manifest is None:
        return Size()
    try:
        stored = [*manifest.storage, *(file for m in Artifact(folder, manifest).members() for file in m.storage)]
    except InputError:  # a member is damaged: the reason says so
        stored = list(manifest.storage)
    counts, stored_bytes = manifest.identity.counts, sum(file.bytes for file in stored) if stored else None
    return Size(total(counts.get("documents")), total(counts.get("tokens")), stored_bytes)
