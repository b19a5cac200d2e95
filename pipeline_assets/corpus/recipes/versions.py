"""Versions of a recipe: the same at the heads that its datasets had on a day, or in a week.

A version is a recipe of its own, `NAME_YYYYMMDD.yaml`, written once: whoever builds it again gets the same pins. Its
artifacts lie in folders of their own; what is as the version before has it is taken over, and no byte of it is written
again.
"""

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.recipes.files import pin_recipe
from pipeline_assets.corpus.spine import durable
from pipeline_assets.corpus.spine.complaints import RECIPE_FILE
from pipeline_assets.corpus.spine.errors import InputError, TransientError
from pipeline_assets.corpus.spine.recipe import Recipe
from pipeline_assets.systems.registry import read_recipe, recipe_path, recipes_of

Period = Literal["day", "week"]
_NAME_LINE = re.compile(r"^name:[^\n]*$", re.MULTILINE)
_DATE = "[0-9]" * 8
logger = logging.getLogger("corpusmill")


@dataclass(frozen=True)
class Version:
    """The version of a recipe that is to be there.

    Attributes:
        path: of its recipe; of the newest one where no head moved.
        before: the recipe of the version before it; None where there is none.
        moved: which datasets have another commit than in that, in words.
        unreachable: of the datasets whose head nobody tells, why: these stay where they were.
    """

    path: Path
    before: Path | None = None
    moved: list[str] = field(default_factory=list)
    unreachable: dict[str, InputError] = field(default_factory=dict)


def first_day(moment: datetime, period: Period) -> str:
    """YYYYMMDD of the day, or of the Monday of its week."""
    return f"{moment - timedelta(days=moment.weekday() if period == 'week' else 0):%Y%m%d}"


def version_of(name: str, root: Path, hub: HubFiles, moment: datetime, period: Period = "day") -> Version:
    """The version of a recipe at a moment; its recipe is written where a head moved since the last.

    Raises:
        InputError: the hub doesn't answer at all, or the recipe can't be changed in place.
    """
    base = recipe_path(name, root)
    versions = versions_of(name, root)
    path = root / "recipes" / f"{name}_{first_day(moment, period)}.yaml"
    earlier = [one for one in versions if one < path]
    if path in versions:
        return Version(path, earlier[-1] if earlier else base)
    newest = versions[-1] if versions else base
    pinned, heads, unreachable = dict(read_recipe(newest).revisions()), dict[str, str](), dict[str, InputError]()
    for dataset in dict.fromkeys(dataset for dataset, _ in read_recipe(base).revisions()):
        try:
            heads[dataset] = hub.resolve(dataset, "main")
        except TransientError:
            raise
        except InputError as error:
            unreachable[dataset] = error
    if unreachable and not heads:
        raise next(iter(unreachable.values()))
    moved = [f"{one}: {pinned.get(one)} → {head}" for one, head in heads.items() if pinned.get(one) != head]
    if not moved:
        return Version(newest, unreachable=unreachable)
    durable.make_folder(path.parent)
    text = _NAME_LINE.sub(f"name: {path.stem}", RECIPE_FILE.bytes_of(base).decode(), count=1)
    building = path.with_suffix(".building")
    durable.write_durably(building, text.encode())
    try:
        for dataset, commit in (pinned | heads).items():
            pin_recipe(building, dataset, commit)
        durable.rename(building, path)
    finally:
        durable.remove(building)
    return Version(path, newest, moved, unreachable)


def versions_of(name: str, root: Path) -> list[Path]:
    """The recipes of a recipe's versions, by date."""
    return sorted((root / "recipes").glob(f"{name}_{_DATE}.yaml"))


def forget_versions(name: str, root: Path, keep: int, say: Callable[[str], None] = logger.info) -> None:
    """Removes artifacts of all but the newest versions, and none that another recipe asks for; recipes stay."""
    old = {path.stem for path in versions_of(name, root)[: -max(keep, 1)]}
    recipes, _ = recipes_of(root)
    kept = {folder for recipe in recipes if recipe.name not in old for folder in _folders(recipe)}
    for recipe in recipes:
        for folder in _folders(recipe) - kept if recipe.name in old else ():
            if (root / folder).exists():
                durable.remove(root / folder)
                say(f"removed {folder}: the newest {keep} versions are kept")


def _folders(recipe: Recipe) -> set[Path]:
    return {target.folder for target in recipe.targets()}
