"""States of the artifacts in a data root.

Reading a state changes no file. Files are compared with their sealed sizes, not hashed.
"""

import contextlib
import datetime
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pipeline_assets.build.target import State, Target
from pipeline_assets.spine import staging
from pipeline_assets.spine.adoption import read_plan
from pipeline_assets.spine.artifact import Artifact, CheckResult, size_error, try_read_manifest
from pipeline_assets.spine.builder import Builder
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.lineage import Lineage
from pipeline_assets.spine.lock_owner import lock_owner
from pipeline_assets.spine.manifest import MANIFEST_FILE, Manifest
from pipeline_assets.spine.manifest_schema import total_count
from pipeline_assets.spine.staging import PLAN_FILE, PULLED_KEY, RECEIPTS_FOLDER, leftover_target

DisplayState = Literal["current", "failed", "stale", "damaged", "missing", "building", "interrupted"]


@dataclass(frozen=True)
class PartialBuild:
    """Running or interrupted build of an artifact, with its unfinished folders."""

    folders: Sequence[Path]  # staging directories, oldest first; if none exist, replaced folders to be removed
    finished_shards: Mapping[str, int]  # by stage, in the newest folder; sorted by stage name
    last_write: datetime.datetime  # last change of the newest folder, its plan or its receipts
    is_sealing: bool  # all shards are built, and the seal has begun
    is_pull: bool  # the build is a pull from a store, which a run does not continue
    builder: Builder | None  # None if no process holds the lock


@dataclass(frozen=True)
class ArtifactSize:
    """Size of a sealed artifact; a value is None if the manifest does not state it."""

    documents: int | None = None
    tokens: int | None = None
    bytes: int | None = None


@dataclass(frozen=True)
class ArtifactStatus:
    """State of the artifact of one target, for `status` and the UI.

    `display_state` is `building` if a process builds the artifact; `interrupted` if folders of an ended build remain
    and the sealed artifact does not match its recipe; otherwise equal to `sealed_state`.
    """

    target: Target
    display_state: DisplayState
    sealed_state: State  # of the sealed artifact, even while it is being rebuilt
    reason: str | None  # why `sealed_state` is failed, stale, damaged or missing; None if it is current
    manifest: Manifest | None  # None if missing or unreadable
    size: ArtifactSize
    sealed_at: datetime.datetime | None
    partial_build: PartialBuild | None
    checks: tuple[CheckResult, ...] = ()

    @property
    def matches_recipe(self) -> bool:
        """True if the sealed artifact matches its recipe, even if a check failed."""
        return self.sealed_state in ("current", "failed")


@dataclass(frozen=True)
class Orphan:
    """Artifact that no recipe requests; `damage` is the first problem found, or None."""

    folder: Path
    name: str | None = None
    digest: str | None = None
    sealed_at: datetime.datetime | None = None
    size: ArtifactSize = ArtifactSize()
    damage: str | None = None


def artifact_statuses(root: Path, targets: Sequence[Target]) -> list[ArtifactStatus]:
    """Return the state of each target of a recipe; `targets` are upstream first.

    An artifact whose own state is current counts as stale if an input is stale, damaged or failed.
    """
    states: dict[str, State] = {}
    statuses = []
    folders = {target.folder.parent for target in targets}
    paths = [(folder, path) for folder in folders if (root / folder).is_dir() for path in (root / folder).iterdir()]
    leftovers = {folder / artifact.name for folder, path in paths if (artifact := leftover_target(path)) is not None}
    for target in targets:
        status = _artifact_status(root, target, states, target.folder in leftovers)
        states[target.role] = status.sealed_state
        statuses.append(status)
    return statuses


def find_orphans(lineage: Lineage, targets: Sequence[Target]) -> list[Orphan]:
    """List the artifacts of a data root that are not in `targets`, sorted by folder."""
    requested = {lineage.root / target.folder for target in targets}
    unreadable = ((folder, error) for folder, error in lineage.manifest_errors.items() if folder not in requested)
    orphaned = [Orphan(folder, damage=error.what) for folder, error in unreadable]
    for folder, manifest in lineage.manifests.items():
        if folder not in requested:
            at, size = sealed_at(manifest.provenance), _sealed_size(folder, manifest)
            wrong = ((file.path, problem) for file in manifest.storage if (problem := size_error(folder, file)))
            damage = next((f"{path}: {problem}" for path, problem in wrong), None)
            orphaned.append(Orphan(folder, manifest.name, manifest.digest, at, size, damage))
    return sorted(orphaned, key=lambda orphan: orphan.folder.parts)


def _artifact_status(root: Path, target: Target, states: Mapping[str, State], has_leftover: bool) -> ArtifactStatus:
    """Return a target's status; `states` maps the roles of inputs to their states."""
    folder = root / target.folder
    unfinished = _find_partial_build(folder) if has_leftover else None
    sealed, explanation = target.state(root)
    is_built, reason = sealed in ("current", "failed"), None if sealed == "current" else explanation
    if sealed == "current":
        worse = [other for other in target.upstream if states.get(other.role) in ("failed", "stale", "damaged")]
        if worse:
            sealed, reason = "stale", f"{worse[0].role} {worse[0].name} is {states[worse[0].role]}"
    manifest = None if sealed == "missing" else try_read_manifest(folder)
    display_state: DisplayState = sealed
    if unfinished is not None and (unfinished.builder is not None or not is_built):
        display_state = "interrupted" if unfinished.builder is None else "building"
    return ArtifactStatus(
        target=target,
        display_state=display_state,
        sealed_state=sealed,
        reason=reason,
        manifest=manifest,
        size=_sealed_size(folder, manifest),
        sealed_at=sealed_at(manifest.provenance) if manifest is not None else None,
        partial_build=unfinished,
        checks=target.check_results(root, manifest) if manifest is not None else (),
    )


def _find_partial_build(folder: Path) -> PartialBuild | None:
    """Return the running or interrupted build of an artifact; None if neither exists."""
    # The lock is examined first: if the build is sealed in between, its folders are gone, and None is returned.
    builder = lock_owner(folder)
    folders = staging.staging_folders(folder) or staging.leftover_folders(folder, "old")
    if not folders:
        return None
    newest = folders[-1]
    shards = dict(Counter(receipt.parent.name for receipt in sorted((newest / RECEIPTS_FOLDER).glob("*/*.json"))))
    is_sealing = (newest / MANIFEST_FILE).exists()
    return PartialBuild(folders, shards, _last_write(newest), is_sealing, PULLED_KEY in read_plan(newest), builder)


def _last_write(folder: Path) -> datetime.datetime:
    times, receipts = [0.0], folder / RECEIPTS_FOLDER
    for path in (folder, folder / PLAN_FILE, *receipts.glob("*"), *receipts.glob("*/*.json")):
        with contextlib.suppress(FileNotFoundError):  # a live builder moves its folder
            times.append(path.stat().st_mtime)
    return datetime.datetime.fromtimestamp(max(times), datetime.UTC)


def sealed_at(provenance: Mapping[str, Any]) -> datetime.datetime | None:
    """Return the end time of a build; None if its provenance has no valid time."""
    try:
        started = datetime.datetime.fromisoformat(provenance["started_at_utc"]).astimezone(datetime.UTC)
        return started + datetime.timedelta(seconds=provenance["seconds"])
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def _sealed_size(folder: Path, manifest: Manifest | None) -> ArtifactSize:
    if manifest is None:
        return ArtifactSize()
    try:
        stored = [*manifest.storage, *(file for m in Artifact(folder, manifest).members() for file in m.storage)]
    except InputError:  # a member is damaged; the status reason reports it
        stored = list(manifest.storage)
    counts, stored_bytes = manifest.identity.counts, sum(file.bytes for file in stored) if stored else None
    return ArtifactSize(total_count(counts.get("documents")), total_count(counts.get("tokens")), stored_bytes)
