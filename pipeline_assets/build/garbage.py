"""Garbage of a data root: folders that no recipe and no artifact needs.

An artifact is needed if a recipe requests or reads its folder; if a user named its folder, in a command that builds
without a recipe or in a copy; or if its digest, or the hash of one of its files, is an input of a needed artifact or of
an unfinished build. If a recipe or a manifest cannot be read, only leftovers of builds are garbage. Cached hub files
are needed if a needed artifact, or the listing of a commit in a recipe, names them.

A garbage artifact first becomes `.NAME.building.N`, the leftover of a dead builder, downstream artifacts first. Then
the needs are read again, so that a build that began meanwhile gets its inputs back. Then the leftovers are removed;
after a crash, the next removal finds them.
"""

import contextlib
import graphlib
import os
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline_assets.build.recipe import Recipe
from pipeline_assets.build.systems import Systems
from pipeline_assets.corpus.readers.hub_cache import lock_folder
from pipeline_assets.corpus.readers.hub_files import CACHE_FOLDER
from pipeline_assets.corpus.readers.hub_listing import read_cached_listing
from pipeline_assets.spine import durable
from pipeline_assets.spine.artifact import check_record_path
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.lineage import AREAS, Lineage
from pipeline_assets.spine.lock import lock_owner, locked
from pipeline_assets.spine.manifest import FILE_NAME, Manifest
from pipeline_assets.spine.opening import highest_fence, read_plan
from pipeline_assets.spine.staging import PLAN, leftover_path, leftover_target

# Commands that write or read a recipe in the data root; others build in a folder that the user names.
_RECIPE_COMMANDS = {"run", "demo", "smoke", "stage2", "nemotron", "parallel"}
_CACHE_AGE_S = 86_400  # a build finds files in the cache before it locks its artifact


@dataclass(frozen=True)
class Garbage:
    """Folder that nothing needs, with its artifact's folder; None for cached files."""

    folder: Path
    reason: str
    artifact: Path | None = None


@dataclass
class Needs:
    """Needs of the recipes, artifacts and unfinished builds in a data root.

    Attributes:
        folders: Folders that recipes request or read, or unfinished builds write, and of artifacts that are too young.
        named: Artifacts in `folders` that no recipe requests, because a user named their folders.
        doubts: Errors of recipes and manifests that cannot be read.
        names: Digests and file hashes of inputs; at first of unfinished builds, then of needed artifacts, too.
        leftovers: Folders of ended builds that no `run` would continue; `unfinished` has the others.
    """

    recipes: Sequence[Recipe]
    sealed: Mapping[Path, Manifest]
    folders: set[Path]
    doubts: Sequence[InputError]
    names: set[str] = field(default_factory=set)
    leftovers: list[Garbage] = field(default_factory=list)
    unfinished: list[Path] = field(default_factory=list)
    named: Sequence[Path] = ()
    is_building: bool = False

    def needed_artifacts(self) -> set[Path]:
        """Return the folders of needed artifacts, and complete `names`."""
        needed, copies = set[Path](), defaultdict[str, list[Path]](list)
        for folder, manifest in self.sealed.items():
            for name in (manifest.digest, *(f"sha256:{file.sha256}" for file in manifest.storage)):
                copies[name].append(folder)
        waiting = [path for folder in self.folders for path in (folder, *folder.parents)]
        waiting += (folder for name in self.names for folder in copies[name])
        while waiting:
            folder = waiting.pop()
            if folder in self.sealed and folder not in needed:
                needed.add(folder)
                identity = self.sealed[folder].identity
                members = (folder / entry["member"] for entry in identity.inputs if "member" in entry)
                waiting += [*folder.parents, *members]
                for name in _input_names(identity.inputs, identity.tokenizer):
                    self.names.add(name)
                    # Of several copies, the requested one is enough.
                    waiting += () if any(copy in self.folders for copy in copies[name]) else copies[name]
        return needed


@dataclass(frozen=True)
class Collector:
    """Search for garbage in a data root, and its removal.

    Attributes:
        min_age_s: Age of garbage in seconds; cached files are at least a day old.
        ignored: Names of recipes that count as missing.
    """

    root: Path
    systems: Systems
    min_age_s: float = 0.0
    ignored: Collection[str] = ()
    started: float = field(default_factory=time.time)

    def find(self) -> tuple[list[Garbage], Needs]:
        """Return the garbage, downstream artifacts first, and the needs of the rest."""
        needs = self._read_needs()
        needed = needs.needed_artifacts()
        if needs.doubts:
            return needs.leftovers, needs
        unneeded = {folder: manifest for folder, manifest in needs.sealed.items() if folder not in needed}
        artifacts = (
            Garbage(path, f"nothing needs {unneeded[path].name}", path) for path in _downstream_first(unneeded)
        )
        return [*needs.leftovers, *artifacts, *self._unneeded_cache(needs)], needs

    def remove(self, garbage: Iterable[Garbage], sealed: Mapping[Path, Manifest]) -> None:
        """Remove garbage that `find` returned, except what another process uses by now.

        `sealed` has the artifacts of that time.
        """
        doomed: dict[Path, Path] = {}  # leftovers, with the folders of their artifacts
        for entry in garbage:
            if entry.artifact is None:
                with lock_folder(entry.folder):
                    for path in entry.folder.iterdir() if self._is_unused(entry.folder) else ():
                        durable.remove(path)
            elif entry.folder != entry.artifact:
                doomed[entry.folder] = entry.artifact
            else:
                with contextlib.suppress(InputError), locked(entry.folder, highest_fence(entry.folder)) as lock:
                    if entry.folder.exists() and not any(map(_is_locked, entry.folder.rglob(".*.lock"))):
                        leftover = leftover_path(entry.folder, "building", lock.fence)
                        doomed[leftover] = entry.folder
                        durable.rename(entry.folder, leftover)
        needs = self._read_needs()
        needs.sealed = {**sealed, **needs.sealed}
        needed = needs.needed_artifacts()
        for leftover, folder in reversed(doomed.items()):
            with contextlib.suppress(InputError), locked(folder, highest_fence(folder)):
                is_hidden = folder in sealed and leftover.exists() and not folder.exists()
                if is_hidden and (needs.doubts or folder in needed):
                    durable.rename(leftover, folder)
        for leftover, folder in doomed.items():
            with contextlib.suppress(InputError), locked(folder, highest_fence(folder)):
                if not folder.exists():
                    durable.remove(check_record_path(folder))
                durable.remove(leftover)

    def _read_needs(self) -> Needs:
        recipes, errors = self.systems.load_recipes(self.root)
        recipes = [recipe for recipe in recipes if recipe.name not in self.ignored]
        requested = {self.root / target.folder: target for recipe in recipes for target in recipe.targets()}
        read = (other for target in requested.values() for other in (*target.upstream, *target.checked_against))
        lineage = Lineage(self.root)
        folders = {*requested, *(self.root / target.folder for target in read)}
        named = [path for path, manifest in lineage.sealed.items() if path not in folders and _is_named(path, manifest)]
        folders |= {folder for folder in lineage.sealed if not self._is_old(folder / FILE_NAME)}.union(named)
        needs = Needs(recipes, lineage.sealed, folders, [*errors, *lineage.unreadable.values()], named=named)
        for leftover, folder in self._leftovers():
            is_building = lock_owner(folder) is not None
            is_resumable = folder in requested and not requested[folder].matches_recipe(self.root)
            is_only_copy = ".old." in leftover.name and not folder.exists()  # of a replacement that was cut off
            dated = next((path for path in (leftover / FILE_NAME, leftover / PLAN) if path.exists()), leftover)
            if is_building or is_resumable or is_only_copy or not self._is_old(dated):
                plan = read_plan(leftover)
                needs.names |= _input_names(plan.get("inputs", ()), plan.get("tokenizer"))
                needs.folders.add(folder)
                needs.is_building |= is_building
                needs.unfinished.append(leftover)
            else:
                needs.leftovers.append(Garbage(leftover, "left by a build that ended", folder))
        return needs

    def _leftovers(self) -> Iterator[tuple[Path, Path]]:
        """Yield leftovers of builds and rebuilds, each with the folder of its artifact."""
        for area in (*AREAS, "rebuilds"):
            for parent, names, _ in os.walk(self.root / area):
                for path in (Path(parent, name) for name in sorted(names)):
                    if (folder := leftover_target(path)) is not None and not path.is_symlink():
                        yield path, folder
                names[:] = (name for name in names if not name.startswith("."))

    def _unneeded_cache(self, needs: Needs) -> Iterator[Garbage]:
        """Yield the folders of cached hub files that nothing needs; none during a build."""
        cache, texts = self.root / CACHE_FOLDER, [recipe.model_dump_json() for recipe in needs.recipes]
        listings = (path for path in cache.glob("**/listings/*.json") if any(path.stem in text for text in texts))
        needed = needs.names | {file.digest for path in listings for file in read_cached_listing(path) or ()}
        for folder in () if needs.is_building else sorted(cache.glob("**/bytes/*-*")):
            if ":".join(folder.name.rsplit("-", 1)) not in needed and self._is_unused(folder):
                yield Garbage(folder, "a cached hub file that no artifact and no recipe names")

    def _is_unused(self, folder: Path) -> bool:
        paths = [*folder.iterdir()]
        return bool(paths) and all(self._is_old(path, _CACHE_AGE_S) for path in paths)

    def _is_old(self, path: Path, least_s: float = 0.0) -> bool:
        try:
            return path.stat().st_mtime <= self.started - max(self.min_age_s, least_s)
        except FileNotFoundError:  # a build moved its folder
            return False


def _is_named(folder: Path, manifest: Manifest) -> bool:
    """Check whether a command without a recipe built an artifact, or it was copied here unchecked."""
    typed = manifest.provenance.get("command", {}).get("typed", "corpusmill run").split()
    return typed[1] not in _RECIPE_COMMANDS or not check_record_path(folder).exists()


def _input_names(inputs: Iterable[Mapping[str, Any]], tokenizer: Mapping[str, Any] | None) -> set[str]:
    return {entry["digest"] for entry in inputs} | ({f"sha256:{tokenizer['sha256']}"} if tokenizer else set())


def _is_locked(lock_file: Path) -> bool:
    return lock_owner(lock_file.with_name(lock_file.name[1 : -len(".lock")])) is not None


def _downstream_first(sealed: Mapping[Path, Manifest]) -> list[Path]:
    """Return the outermost folders, each after the folders that use its artifacts."""
    outermost = {folder: [path for path in (folder, *folder.parents) if path in sealed][-1] for folder in sealed}
    folders = {manifest.digest: outermost[folder] for folder, manifest in sealed.items()}
    users: dict[Path, set[Path]] = {folder: set() for folder in outermost.values()}
    for folder, manifest in sealed.items():
        for entry in manifest.identity.upstream:
            used = folders.get(entry["digest"], outermost[folder])
            users[used] |= {outermost[folder]} - {used}
    return [*graphlib.TopologicalSorter(users).static_order()]
