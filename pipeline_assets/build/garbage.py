"""Garbage of a data root: folders that no recipe and no artifact needs.

An artifact is needed in each of these cases:

- It is newer than the minimum age.
- A recipe requests or reads its folder, or a file in the folder.
- A user pulled or copied it, or its build command names its folder, recipe file or input.
- Its digest, or the hash of one of its files, is an input of a needed artifact or of an unfinished build. If the input
  exists in several copies, and another rule keeps one of them, this rule keeps no further copy.

A cached hub file is needed if a needed artifact names it, or if the hub's listing of a commit in a recipe names it.
Copied objects are needed if a needed artifact names their folder or a recipe names their URL. If a recipe, manifest or
folder cannot be read, or a folder in `AREAS` has a link, only leftovers of builds and kept work of missing artifacts
are garbage.

Garbage artifacts are first hidden: each folder gets the name of a leftover, `.NAME.building.N`. After a second survey,
hidden artifacts that a new build needs are restored, and all others are removed. After a crash, the next removal
restores or removes the hidden artifacts.
"""

import contextlib
import functools
import graphlib
import os
import re
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline_assets.build import recipe_paths
from pipeline_assets.build.recipe import Recipe
from pipeline_assets.build.systems import Systems
from pipeline_assets.corpus.readers.hub_cache import cached_folders
from pipeline_assets.corpus.readers.hub_files import CACHE_FOLDER
from pipeline_assets.corpus.readers.hub_listing import read_cached_listing
from pipeline_assets.corpus.stores import object_source
from pipeline_assets.spine import durable, staging
from pipeline_assets.spine.adoption import read_plan
from pipeline_assets.spine.areas import AREAS, scan_folders
from pipeline_assets.spine.artifact import check_record_path
from pipeline_assets.spine.errors import InputError, RetryableError
from pipeline_assets.spine.folder_lock import lock_folder
from pipeline_assets.spine.kept_folder import kept_folder, kept_folder_target
from pipeline_assets.spine.lineage import Lineage
from pipeline_assets.spine.lock import locked, locked_path
from pipeline_assets.spine.lock_owner import lock_owner
from pipeline_assets.spine.manifest import MANIFEST_FILE, Manifest
from pipeline_assets.spine.opening import highest_fence
from pipeline_assets.spine.staging import BUILDER_KEY, PLAN_FILE, PULLED_KEY, RECEIPTS_FOLDER, fencing_number

# Commands that write or read a recipe in the data root; others build in a folder that the user names, and some commands
# of nemotron build next to the input that the user names.
_RECIPE_COMMANDS = {"run", "demo", "smoke", "stage2", "nemotron", "parallel"}
_INPUT_COMMANDS = (["nemotron", "percentiles"], ["nemotron", "pools"], ["nemotron", "subsets"])
_MIN_CACHE_AGE_S = 86_400  # a build finds files in the cache before it locks its artifact


@dataclass(frozen=True)
class Garbage:
    """Folder that nothing needs: an artifact, its leftovers or kept work, or a cache."""

    folder: Path
    reason: str
    artifact_folder: Path | None = None  # of the artifact that owns `folder` and may be missing; None for a cache


class Survey:
    """Garbage found in a data root at one moment; `remove` removes it.

    Attributes:
        garbage: In this order: leftovers, kept work of missing artifacts, artifacts (downstream ones first), folders of
            cached hub files, and folders of copied objects.
        unfinished: Leftovers to keep: a build uses or can resume them, their seal was interrupted, or they are too new.
        user_folders: Folders kept without a recipe, because a user named, pulled or copied them, or no check ever ran.
        errors: Errors about recipes, manifests, folders and links; if there are any, no artifact is garbage.
    """

    def __init__(
        self,
        root: Path,
        systems: Systems,
        min_age_s: float = 0.0,
        ignored_recipes: Collection[str] = (),
        now_s: float | None = None,
    ) -> None:
        """Survey a data root.

        Garbage is at least `min_age_s` seconds old at the time `now_s` (by default now). Garbage in a cache is also at
        least a day old. Recipes named in `ignored_recipes` are treated as missing: their artifacts may be garbage.
        """
        self._now_s = time.time() if now_s is None else now_s
        # A clock that is set back or forward in between must change no age.
        self._survey_again = functools.partial(Survey, root, systems, min_age_s, ignored_recipes, self._now_s)
        self._max_mtime_s = self._now_s - min_age_s
        recipes, errors = _load_recipes(root, systems)
        recipes = [recipe for recipe in recipes if recipe.name not in ignored_recipes]
        requested = {root / target.folder: target for recipe in recipes for target in recipe.targets()}
        read = (other for target in requested.values() for other in (*target.upstream, *target.checked_against))
        self._protected = {*requested, *(root / target.folder for target in read)}
        paths = (getattr(target.external_inputs, "path", None) for target in requested.values())  # input files, folders
        self._protected |= {root / os.path.relpath(root / path, root) for path in paths if path is not None}
        self._building_digests = set[str]()  # digests and file hashes of the inputs of unfinished builds
        self._hidden: dict[Path, Path] = {}  # leftovers that removals made, by the folder of the artifact
        self._is_building = False
        self.garbage: list[Garbage] = []
        self.unfinished: list[Path] = []
        sealed, leftovers, kept_folders, links = dict[Path, Manifest](), *_find_leftovers(root)
        for leftover, folder in leftovers:
            # A recipe that cannot be read may request it, and continue it once the recipe is corrected.
            is_resumable = not requested[folder].matches_recipe(root) if folder in requested else bool(errors)
            sealed |= self._classify_leftover(leftover, folder, is_resumable)
        lineage = Lineage(root)  # after the leftovers, to include artifacts that are sealed in between
        sealed |= lineage.manifests
        self.garbage += [
            Garbage(kept, "kept work of a missing artifact", folder)
            for kept, folder in kept_folders
            if not folder.exists() and folder not in self._hidden and self._is_old(kept)
        ]
        unreadable = [*lineage.manifest_errors.values(), *_unreadable_folders(root)]
        self.errors: list[InputError] = [*errors.values(), *unreadable, *links]
        unprotected = (path for path in lineage.manifests if path not in self._protected)
        self.user_folders = [path for path in unprotected if _is_requested_by_user(path, sealed[path])]
        self._protected.update(folder for folder in lineage.manifests if not self._is_old(folder / MANIFEST_FILE))
        self._protected.update(self.user_folders)
        self._artifacts = _group_members(sealed)
        self._needed = self._artifacts.keys() if self.errors else self._find_needed_artifacts()
        for path in self._downstream_first(self._artifacts.keys() - self._needed):
            reason = f"nothing needs {self._artifacts[path][0].name}"
            self.garbage.append(Garbage(self._hidden.get(path, path), reason, path))
        if not self.errors and not self._is_building:
            texts = [recipe.model_dump_json() for recipe in recipes]
            self.garbage += self._find_unneeded_cache(root / CACHE_FOLDER, texts)
            self.garbage += self._find_unneeded_copies(root, texts)

    def remove(self, garbage: Collection[Garbage]) -> None:
        """Remove `garbage`, except folders that another process has begun to use.

        If a recipe, manifest or folder became unreadable after this survey, restore all artifacts and raise InputError.
        """
        for entry in garbage:
            if entry.artifact_folder is None:
                with lock_folder(entry.folder):
                    for path in entry.folder.iterdir() if self._is_untouched(entry.folder) else ():
                        durable.remove(path)
            elif entry.folder == entry.artifact_folder:
                with contextlib.suppress(InputError), locked(entry.folder, highest_fence(entry.folder)) as lock:
                    members = (locked_path(path) for path in entry.folder.rglob(".*.lock"))
                    if entry.folder.exists() and not any(lock_owner(member) is not None for member in members):
                        durable.rename(entry.folder, staging.sibling_path(entry.folder, "building", lock.fence))
        second = self._survey_again()
        # Artifacts that could not be hidden keep their inputs.
        second._protected |= second._artifacts.keys() - second._hidden.keys()
        restored = second._hidden.keys() & (second._needed if second.errors else second._find_needed_artifacts())
        for folder in reversed(second._downstream_first(restored)):
            with contextlib.suppress(InputError), locked(folder, highest_fence(folder)):
                if second._hidden[folder].exists() and not folder.exists():
                    durable.rename(second._hidden[folder], folder)
        removed = {entry.artifact_folder for entry in garbage}
        for entry in second.garbage:
            artifact = entry.artifact_folder
            is_restored = artifact in restored and second._hidden[artifact] == entry.folder
            if artifact in removed and artifact not in (None, entry.folder) and not is_restored:
                with contextlib.suppress(InputError), locked(artifact, highest_fence(artifact)):
                    remove_hidden_folder(artifact, entry.folder)
        if second.errors and not self.errors:
            raise second.errors[0]

    def _classify_leftover(self, leftover: Path, artifact_folder: Path, is_resumable: bool) -> dict[Path, Manifest]:
        """Add a leftover to `garbage`, to `unfinished`, or to the hidden artifacts.

        If a removal hid an artifact by renaming it to this leftover, return the manifests of the artifact and of all
        artifacts inside it, by original folder. Otherwise the result is empty.
        """
        found = {artifact_folder / Path(path).relative_to(leftover): item for path, item in scan_folders(str(leftover))}
        manifests = {path: item for path, item in found.items() if isinstance(item, Manifest)}
        whole = None if artifact_folder.exists() else manifests.get(artifact_folder)
        dated = next((path for path in (leftover / MANIFEST_FILE, leftover / PLAN_FILE) if path.exists()), leftover)
        is_locked, is_old = lock_owner(artifact_folder) is not None, self._is_old(dated)
        is_replaced = whole is not None and ".old." in leftover.name  # by a seal that was cut off
        has_other_builder = whole is not None and whole.provenance.get(BUILDER_KEY) != fencing_number(leftover)
        if has_other_builder and not is_locked and staging.staging_folders(artifact_folder)[-1:] == [leftover]:
            self._hidden[artifact_folder] = leftover
            self._protected |= set() if is_old else {artifact_folder}
            return manifests
        if is_locked or is_resumable or is_replaced or not is_old:
            plan = read_plan(leftover)
            self._building_digests |= _entry_digests(plan.get("inputs", ()), plan.get("tokenizer"))
            self._building_digests.update(*map(_input_digests, manifests.values()))
            self._protected.add(artifact_folder)
            self._is_building |= is_locked
            self.unfinished.append(leftover)
        else:
            self.garbage.append(Garbage(leftover, "left by a build that ended", artifact_folder))
        return {}

    def _find_needed_artifacts(self) -> Set[Path]:
        """Return the folders of needed artifacts, and set `_needed_digests`."""
        copies = defaultdict[str, list[Path]](list)
        self._needed_digests = {*self._building_digests}
        for folder, manifests in self._artifacts.items():
            for manifest in manifests:
                for name in (manifest.digest, *(f"sha256:{file.sha256}" for file in manifest.storage)):
                    copies[name].append(folder)
        chosen = self._artifacts.keys() & {path for folder in self._protected for path in (folder, *folder.parents)}
        waiting, needed = [*chosen, *(folder for name in self._needed_digests for folder in copies[name])], set[Path]()
        while waiting:
            folder = waiting.pop()
            if folder not in needed:
                needed.add(folder)
                names = {name for manifest in self._artifacts[folder] for name in _input_digests(manifest)}
                self._needed_digests |= names
                # Of several copies, one that is kept anyway is enough.
                waiting += (copy for name in names if not chosen.intersection(copies[name]) for copy in copies[name])
        return needed

    def _downstream_first(self, folders: Set[Path]) -> list[Path]:
        """Sort artifact folders so that downstream artifacts come before their inputs."""
        owners = {manifest.digest: folder for folder in folders for manifest in self._artifacts[folder]}
        users: dict[Path, set[Path]] = {folder: set() for folder in sorted(folders)}
        for folder in users:
            for used in {owners.get(name, folder) for item in self._artifacts[folder] for name in _input_digests(item)}:
                users[used] |= {folder} - {used}
        return [*graphlib.TopologicalSorter(users).static_order()]

    def _find_unneeded_cache(self, cache: Path, recipe_texts: Collection[str]) -> Iterator[Garbage]:
        """Yield the folders of cached hub files that nothing needs."""
        texts = "\n".join(recipe_texts)
        listings = (path for path in cache.glob("**/listings/*.json") if path.stem in texts)
        needed = self._needed_digests | {file.digest for path in listings for file in read_cached_listing(path) or ()}
        for digest, folder in cached_folders(cache):
            if digest not in needed and self._is_untouched(folder):
                yield Garbage(folder, "a cached hub file that no artifact and no recipe names")

    def _find_unneeded_copies(self, root: Path, recipe_texts: Collection[str]) -> Iterator[Garbage]:
        """Yield the folders of copied objects that nothing needs."""
        pins = (item.provenance.get("folder") for folder in self._needed for item in self._artifacts[folder])
        pinned = [root / pin for pin in pins if pin is not None]
        for receipts in sorted((root / object_source.OBJECT_CACHE_FOLDER).glob(f"**/{RECEIPTS_FOLDER}")):
            folder, url = receipts.parent, str(object_source.source_url(receipts.parent))
            is_named = any(pin.is_relative_to(folder) for pin in pinned) or any(url in text for text in recipe_texts)
            if not is_named and self._is_untouched(folder):
                yield Garbage(folder, "copies of objects that no artifact and no recipe names")

    def _is_untouched(self, folder: Path) -> bool:
        """Check whether a folder has files, all older than both a day and the minimum age."""
        paths = [*folder.iterdir()]
        return bool(paths) and all(self._is_old(path, self._now_s - _MIN_CACHE_AGE_S) for path in paths)

    def _is_old(self, path: Path, max_mtime_s: float = float("inf")) -> bool:
        try:
            return path.stat().st_mtime <= min(self._max_mtime_s, max_mtime_s)
        except FileNotFoundError:  # a build moved its folder
            return False


def remove_hidden_folder(artifact_folder: Path, hidden_folder: Path) -> None:
    """Remove `hidden_folder`: a hidden artifact, a leftover or kept work.

    The caller must lock the artifact. If `artifact_folder` does not exist, also remove its check record and kept work.
    """
    if not artifact_folder.exists():
        durable.remove(check_record_path(artifact_folder))
        durable.remove(kept_folder(artifact_folder))
    durable.remove(hidden_folder / MANIFEST_FILE)  # first, so that no part of an artifact is restored after a crash
    durable.remove(hidden_folder)


def _find_leftovers(root: Path) -> tuple[list[tuple[Path, Path]], list[tuple[Path, Path]], list[InputError]]:
    """List (leftover, artifact) and (kept work, artifact) folders, and link errors."""
    leftovers, kept, links = list[tuple[Path, Path]](), list[tuple[Path, Path]](), list[InputError]()
    for area in (*AREAS, "rebuilds"):
        for parent, names, files in os.walk(root / area):
            for path in (Path(parent, name) for name in sorted((*names, *files))):
                folder = staging.leftover_target(path)
                if path.is_symlink():
                    what = "a link hides what its artifacts were built from"
                    fix = "mount the folder at this path, or link a top-level folder, such as data/stage_a"
                    links += [] if path.name.startswith(".") else [RetryableError(what, path, fix)]
                elif folder is not None and path.is_dir():
                    leftovers.append((path, folder))
                elif (folder := kept_folder_target(path)) is not None and path.is_dir():
                    kept.append((path, folder))
            names[:] = (name for name in names if not name.startswith("."))
    return leftovers, kept, links


def _load_recipes(root: Path, systems: Systems) -> tuple[list[Recipe], dict[str, InputError]]:
    """Return recipes and errors, also the error of a folder that cannot be read."""
    try:
        return systems.load_recipes(root)
    except RetryableError as error:
        return [], {"": error}


def _unreadable_folders(root: Path) -> Iterator[InputError]:
    """Yield errors about folders whose recipes or artifacts cannot be listed."""
    shipped = recipe_paths.PROJECT_RECIPES_FOLDER
    if not os.path.lexists(shipped):
        yield RetryableError("folder not found", shipped, "install the program again")
    for folder in (shipped, *(root / area for area in AREAS)):
        if (error := recipe_paths.find_folder_error(folder)) is not None:
            yield error


def _group_members(sealed: Mapping[Path, Manifest]) -> dict[Path, list[Manifest]]:
    """Group manifests by outermost artifact, whose own manifest is first in its group."""
    groups: dict[Path, list[Manifest]] = {}
    for folder, manifest in sealed.items():
        outermost = [path for path in (folder, *folder.parents) if path in sealed][-1]
        groups.setdefault(outermost, []).append(manifest)
    return groups


def _is_requested_by_user(folder: Path, manifest: Manifest) -> bool:
    """Check whether a user pulled or copied an artifact, or built it from a path.

    An artifact was built from a path if the build command in its manifest names a folder, a recipe file or an input.
    """
    typed = manifest.provenance.get("command", {}).get("typed", "corpusmill run")
    words, without_values = typed.split(), re.sub(r" --(data|partition)[= ]('[^']*'|\S+)", "", typed)
    has_recipe_file = any(word.strip("'\"").endswith((".yaml", ".yml")) for word in words)
    has_recipe_file |= words[1:2] == ["run"] and "/" in without_values  # `run` reads any path with a slash
    is_copy = PULLED_KEY in manifest.provenance or not check_record_path(folder).exists()
    has_recipe = _RECIPE_COMMANDS.issuperset(words[1:2]) and words[1:3] not in _INPUT_COMMANDS
    return is_copy or has_recipe_file or not has_recipe


def _input_digests(manifest: Manifest) -> set[str]:
    return _entry_digests(manifest.identity.inputs, manifest.identity.tokenizer)


def _entry_digests(inputs: Iterable[Mapping[str, Any]], tokenizer: Mapping[str, Any] | None) -> set[str]:
    return {entry["digest"] for entry in inputs} | ({f"sha256:{tokenizer['sha256']}"} if tokenizer else set())
