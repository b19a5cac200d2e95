"""Remnants of forgotten rows in artifacts, leftovers and caches of a data root."""

import contextlib
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline_assets.build.garbage import remove_hidden_folder
from pipeline_assets.build.pins.model_pin import TEMPLATE_STAGE
from pipeline_assets.build.removal_staleness import omitted_listed_rows
from pipeline_assets.build.removal_state import read_comparisons
from pipeline_assets.build.rows.row_stores import RowStores
from pipeline_assets.corpus.readers.hub_cache import cached_folders
from pipeline_assets.corpus.readers.hub_files import CACHE_FOLDER
from pipeline_assets.corpus.readers.source_folder import input_folder_path
from pipeline_assets.corpus.removals import REMOVALS_FOLDER
from pipeline_assets.corpus.stores.object_source import OBJECT_CACHE_FOLDER
from pipeline_assets.spine import durable
from pipeline_assets.spine.adoption import read_plan
from pipeline_assets.spine.areas import AREAS, scan_folders
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.folder_lock import lock_folder
from pipeline_assets.spine.kept_folder import kept_folder_target
from pipeline_assets.spine.lock import locked, locked_path
from pipeline_assets.spine.lock_owner import lock_owner
from pipeline_assets.spine.manifest import Manifest
from pipeline_assets.spine.opening import highest_fence
from pipeline_assets.spine.staging import leftover_target, sibling_path

# `hub` has the demo's published sets, which `forget --published` searches.
_FOLDERS_WITHOUT_EXPORTS = {CACHE_FOLDER, OBJECT_CACHE_FOLDER, REMOVALS_FOLDER, "dagster", "hub", "rebuilds"}


@dataclass(frozen=True)
class Remnant:
    """Folder that may contain forgotten rows."""

    folder: Path
    reason: str
    lock_path: Path | None = None  # locked during removal: an artifact's folder or, for downloads, the removal record
    is_cached: bool = False  # contains cached bytes of a hub file, which a build may be fetching
    is_manual: bool = False  # only the user can remove the rows

    @property
    def is_artifact(self) -> bool:
        return self.lock_path == self.folder


def find_remnants(stores: RowStores, affected_folders: Collection[Path]) -> Iterator[Remnant]:
    """Yield everything that may still contain forgotten rows, artifacts first.

    `affected_folders` are the folders that `compare_with_removal_list` returns. An artifact inside another affected
    artifact is yielded only if its rows were published.
    """
    root, sealed = stores.lineage.root, stores.lineage.manifests
    digests = {digest for digest, comparison in read_comparisons(root).items() if comparison.has_listed_rows}
    for folder in affected_folders:
        if (published := sealed[folder].provenance.get("published")) is not None:
            yield Remnant(folder, f"rows at {published['url']}, commit {published['commit']}", is_manual=True)
        elif not any(parent in affected_folders for parent in folder.parents):
            yield Remnant(folder, "an artifact that was not rebuilt", folder)
    if digests:
        yield from _find_exports(stores, digests)
    without_rows = (
        folder
        for folder, manifest in sealed.items()
        if omitted_listed_rows(manifest) or manifest.provenance.get("replaces") in digests
    )
    touched = {*affected_folders, *without_rows}
    for folder in _hidden_folders(root):
        target, plan = leftover_target(folder), read_plan(folder)
        kind, inputs = stores.kinds.get(plan.get("kind", "")), {entry["digest"] for entry in plan.get("inputs", ())}
        is_clean = kind is not None and not kind.applies_removals and not inputs & digests
        if target is not None and not is_clean and lock_owner(target) is None:
            yield Remnant(folder, "left by a build that ended", target)
        elif (target := kept_folder_target(folder)) in touched:
            yield Remnant(folder, "work that was kept for the next version", target)
    sources = list(_source_files(stores, touched))
    cached = {entry["digest"] for _, entry in sources}
    for digest, folder in cached_folders(root / CACHE_FOLDER):
        if digest in cached and any(folder.iterdir()):
            yield Remnant(folder, "a cached hub file, which a build fetches again", is_cached=True)
    for folder in sorted((root / REMOVALS_FOLDER).glob("published/*.downloads")):
        yield Remnant(folder, "downloads of a search of a published set", folder.with_suffix(".json"))
    if (root / "rebuilds").exists():
        yield Remnant(root / "rebuilds", "copies that `rebuild` made")
    if (root / "dagster").exists():
        yield Remnant(root / "dagster", "previews of first rows, which the UI keeps", is_manual=True)
    for local in sorted(filter(None, {input_folder_path(listing, root) for listing, _ in sources})):
        yield Remnant(local, "source files", is_manual=True)


def _find_exports(stores: RowStores, digests: Collection[str]) -> Iterator[Remnant]:
    """Yield exports and copies whose artifact is missing here or is in `digests`."""
    lineage = stores.lineage
    source_folders = {input_folder_path(manifest, lineage.root) for manifest in lineage.manifests.values()}
    for folder, manifest in _sealed_outside_areas(lineage.root):
        inputs, kind = {entry["digest"] for entry in manifest.identity.upstream}, stores.kinds.get(manifest.kind)
        compared = {manifest.digest} if kind is not None and kind.applies_removals else inputs or {manifest.digest}
        if not {manifest.digest, *inputs}.isdisjoint(digests):
            is_source = not source_folders.isdisjoint((folder, *folder.parents))
            yield Remnant(folder, "an export or copy of an artifact", folder, is_manual=is_source)
        elif manifest.digest not in lineage and not all(digest in lineage for digest in compared):
            yield Remnant(folder, "an export or copy of an artifact that the data root lacks", is_manual=True)


def _sealed_outside_areas(root: Path) -> Iterator[tuple[Path, Manifest]]:
    """Yield sealed folders outside `AREAS`, except nested ones and other data roots."""
    sealed: Path | None = None
    for top in sorted(root.iterdir()):
        if top.name not in _FOLDERS_WITHOUT_EXPORTS and not top.name.startswith("."):
            for folder, manifest in ((Path(name), found) for name, found in scan_folders(str(top))):
                is_nested = sealed in folder.parents or {*AREAS}.intersection(folder.relative_to(root).parts)
                if isinstance(manifest, Manifest) and not is_nested:
                    sealed = folder
                    yield folder, manifest


def _hidden_folders(root: Path) -> Iterator[Path]:
    for area in AREAS:
        for parent, names, _ in os.walk(root / area):
            yield from (Path(parent, name) for name in sorted(names) if name.startswith("."))
            names[:] = (name for name in names if not name.startswith("."))


def _source_files(stores: RowStores, folders: Collection[Path]) -> Iterator[tuple[Manifest, Mapping[str, Any]]]:
    """Yield (manifest, entry) for each source file of the artifacts in `folders`.

    The manifest belongs to the artifact or to a direct input, and lists the file. Artifacts of kinds that do not apply
    the removal list are skipped.
    """
    lineage = stores.lineage
    for manifest in (lineage.manifests[folder] for folder in folders):
        kind = stores.kinds.get(manifest.kind)
        if kind is not None and kind.applies_removals:
            upstream = (lineage.folder_for(entry["digest"]) for entry in manifest.identity.upstream)
            for listing in (manifest, *(lineage.manifests[folder] for folder in upstream if folder is not None)):
                if listing.identity.stage.name != TEMPLATE_STAGE.name:  # a model has no rows
                    yield from ((listing, entry) for entry in listing.identity.inputs if "bytes" in entry)


def remove_remnants(remnants: Sequence[Remnant]) -> list[Path]:
    """Remove remnants that need no user action; return the folders that are locked."""
    busy = list[Path]()
    for entry in (entry for entry in remnants if not entry.is_manual):
        if entry.is_cached:
            with lock_folder(entry.folder):
                for path in entry.folder.iterdir():
                    durable.remove(path)
            continue
        try:
            if entry.lock_path is None:
                with contextlib.ExitStack() as locks:
                    for path in entry.folder.glob(".*.lock"):  # held by running rebuilds
                        locks.enter_context(locked(locked_path(path)))
                    durable.remove(entry.folder)
                continue
            with locked(entry.lock_path, highest_fence(entry.lock_path)) as lock:
                hidden = entry.folder
                if entry.is_artifact:
                    hidden = sibling_path(entry.lock_path, "building", lock.fence)
                    durable.rename(entry.folder, hidden)
                remove_hidden_folder(entry.lock_path, hidden)
        except InputError:
            busy.append(entry.folder)
    return busy
