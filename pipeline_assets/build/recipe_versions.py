"""Recipe versions: dated copies of a recipe that pin its datasets' newest commits.

The version of a day or a week is a recipe file `NAME_YYYYMMDD.yaml`. The file is written once, so all builds of the
version read the same commits. Each version's artifacts have their own folders; files that equal files of the previous
version are hard links. A head is the newest commit of a dataset's branch `main`.
"""

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

from pipeline_assets.build.garbage import Survey
from pipeline_assets.build.recipe import Recipe
from pipeline_assets.build.recipe_paths import recipe_path
from pipeline_assets.build.recipe_pins import pin_recipe, read_revision
from pipeline_assets.build.recipe_writing import copy_recipe
from pipeline_assets.build.systems import Systems
from pipeline_assets.corpus.filters.own_step import step_file_names
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.spine import durable
from pipeline_assets.spine.artifact import try_read_manifest
from pipeline_assets.spine.errors import InputError, TransientError, UsageError
from pipeline_assets.spine.key_types import UNPINNED
from pipeline_assets.spine.recipe_yaml import RECIPE_FORMAT, read_yaml, replace_value
from pipeline_assets.spine.temporary_names import temporary_path

Period = Literal["day", "week"]
_DATE_GLOB = "[0-9]" * 8
logger = logging.getLogger("corpusmill")


@dataclass(frozen=True)
class RecipeVersion:
    """Recipe file that `find_or_write_version` found or wrote for a period."""

    path: Path  # file of the period's version, else of the newest one, else of the base recipe
    previous_path: Path | None = None  # version before it, or the base recipe; None for the base recipe itself
    changes: list[str] = field(default_factory=list)  # `DATASET: OLD → NEW`, and a line per changed local source
    head_errors: list[InputError] = field(default_factory=list)  # about datasets that keep their commits


def period_start(moment: datetime, period: Period) -> str:
    """Return the date of a moment, or of the Monday of its week, as YYYYMMDD."""
    return f"{moment - timedelta(days=moment.weekday() if period == 'week' else 0):%Y%m%d}"


def find_or_write_version(
    recipe_name: str, root: Path, systems: Systems, hub: HubFiles, moment: datetime, period: Period = "day"
) -> RecipeVersion:
    """Return the version of a recipe for the period that contains `moment`.

    A missing version is written if a dataset's head moved or a local source's files changed, unless a later period has
    a version. If none is written, `RecipeVersion.path` is the newest existing recipe file.

    Raises:
        InputError: The hub did not answer, or the head of a dataset without a pinned commit is unknown.
        UsageError: The version would replace artifacts of the newest existing recipe file.
    """
    base = recipe_path(recipe_name, root)
    versions = list_versions(recipe_name, root)
    path = root / "recipes" / f"{recipe_name}_{period_start(moment, period)}.yaml"
    if path in versions:
        return RecipeVersion(path, earlier_version(recipe_name, period_start(moment, period), root))
    newest, previous = base, None
    if versions:  # the newest one may be incomplete, as after a failure: its build links files of the one before
        newest = versions[-1]
        previous = earlier_version(recipe_name, newest.stem.rpartition("_")[2], root)
        if path < newest:  # a repeated run of an earlier week sees today's heads
            logger.warning("%s is not written, because %s has a later date", path, newest.name)
            return RecipeVersion(newest, previous)
    pinned, heads, head_errors = dict(systems.read_recipe(newest).revisions()), dict[str, str](), list[InputError]()
    commits: dict[str, str] = {}  # of the base recipe's datasets, except datasets that it reads at several commits
    for dataset in dict.fromkeys(dataset for dataset, _ in systems.read_recipe(base).revisions()):
        try:
            commits[dataset] = pinned.get(dataset, read_revision(base, dataset, systems))
            commits[dataset] = heads[dataset] = hub.resolve(dataset, "main")
        except InputError as error:
            if isinstance(error, TransientError) or commits.get(dataset) == UNPINNED:  # no commit can be kept
                raise
            head_errors.append(error)
    moved = [f"{name}: {pinned.get(name)} → {head}" for name, head in heads.items() if pinned.get(name) != head]
    file_changes = _file_changes(systems.read_recipe(newest), root)
    moved += file_changes.values()
    if not moved:
        return RecipeVersion(newest, previous, head_errors=head_errors)
    text = replace_value(RECIPE_FORMAT.read_raw(base).decode(), "name", path.stem)
    folder = temporary_path(path)
    draft = folder / path.name
    durable.make_folder(folder)
    try:
        durable.write_durably(draft, text.encode())
        for file in step_file_names(read_yaml(base)):
            durable.write_durably(draft.with_name(file), RECIPE_FORMAT.read_raw(base.with_name(file)))
        for dataset, commit in commits.items():
            pin_recipe(draft, dataset, commit, systems)
        _raise_if_replacing(systems.read_recipe(draft), systems.read_recipe(newest), file_changes, base)
        copy_recipe(draft, path.stem, root, replace=False)
    finally:
        durable.remove(folder)
    return RecipeVersion(path, newest, moved, head_errors)


def _file_changes(recipe: Recipe, root: Path) -> dict[Path, str]:
    """Return descriptions of changed local source files, by folder of their listing."""
    changes = dict[Path, str]()
    for source in recipe.targets():
        manifest = None if source.upstream else try_read_manifest(root / source.folder)
        if manifest is None or source.external_inputs is None:
            continue
        if change := source.external_inputs.describe_changes(root, manifest):
            changes[source.folder] = f"{source.role}: {change}"
    return changes


def _raise_if_replacing(version: Recipe, earlier: Recipe, changed_folders: Collection[Path], base_path: Path) -> None:
    """Raise UsageError if a version would replace artifacts of an earlier recipe."""
    earlier_contents = {target.folder: target.recipe for target in earlier.targets()}
    for target in version.targets():
        is_changed = target.folder in changed_folders or earlier_contents.get(target.folder) != target.recipe
        if target.folder in earlier_contents and is_changed:
            what = f"each version would replace the artifact of the earlier one in {target.folder}"
            fix = "remove `outputs.normalized_dir`, so that each version has its own folders"
            raise UsageError(what, base_path, fix)


def list_versions(recipe_name: str, root: Path) -> list[Path]:
    """List the files of a recipe's versions, oldest first."""
    return sorted((root / "recipes").glob(f"{recipe_name}_{_DATE_GLOB}.yaml"))


def earlier_version(recipe_name: str, date: str, root: Path) -> Path:
    """Return the file of the newest version before a date, or of the base recipe."""
    earlier = [path for path in list_versions(recipe_name, root) if path.stem < f"{recipe_name}_{date}"]
    return earlier[-1] if earlier else recipe_path(recipe_name, root)


def raise_if_in_future(recipe_name: str, root: Path, now: datetime) -> None:
    """Raise UsageError if a recipe has a version that is dated later than tomorrow.

    Such a version comes from a wrong clock. It would remain the newest one, so that no head is followed until its date.
    """
    newest = list_versions(recipe_name, root)[-1:]
    if newest and newest[0].stem > f"{recipe_name}_{now + timedelta(days=1):%Y%m%d}":  # it may be tomorrow elsewhere
        what = f"the date of this version is later than today, {now:%Y%m%d}, so no version can follow it"
        raise UsageError(what, newest[0], "correct the clock, or delete the file if a wrong clock dated it")


def old_version_names(recipe_name: str, root: Path, keep_count: int) -> set[str]:
    """Return the names of a recipe's versions, except the newest `keep_count` (>= 1)."""
    return {path.stem for path in list_versions(recipe_name, root)[:-keep_count]}


def delete_old_artifacts(
    recipe_name: str, root: Path, systems: Systems, keep_count: int, report: Callable[[str], None] = logger.info
) -> None:
    """Remove the artifacts of a recipe's versions, except the newest `keep_count`.

    Recipe files are kept, and so are artifacts that another recipe or artifact needs. `keep_count` below 1 counts as 1.
    `report` gets a line for each removed or locked folder, and for each error that prevents removals.
    """
    keep_count = max(keep_count, 1)
    old = old_version_names(recipe_name, root, keep_count)
    recipes = [recipe for recipe in systems.load_recipes(root)[0] if recipe.name in old]
    folders = {root / target.folder for recipe in recipes for target in recipe.targets()}
    survey = Survey(root, systems, ignored_recipes=old)
    garbage = [entry for entry in survey.garbage if entry.artifact_folder in folders]
    survey.remove(garbage)
    for entry in garbage:
        folder = entry.folder.relative_to(root)
        if entry.folder.exists():
            report(f"kept {folder}: it is in use, or belongs to another user")
        else:
            report(f"removed {folder}: versions whose artifacts are kept: {keep_count}")
    for error in survey.errors if old else ():
        report(f"WARNING {error}; until then the artifacts of old versions are kept")
