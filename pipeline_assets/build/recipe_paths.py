"""Recipes of a data root or the project, found by name or by folder."""

import difflib
import os
from collections.abc import Iterable
from pathlib import Path

import pydantic

from pipeline_assets.build.recipe import Recipe
from pipeline_assets.spine.errors import RetryableError, UsageError
from pipeline_assets.spine.key_types import Name
from pipeline_assets.spine.recipe_yaml import locate_key, read_yaml
from pipeline_assets.spine.shipped import shipped_path

PROJECT_RECIPES_FOLDER = shipped_path("manifests/recipes")
_NAME = pydantic.TypeAdapter(Name)


def recipe_paths(root: Path) -> dict[str, Path]:
    """Map names to recipe files; files in the data root override shipped files.

    Raise RetryableError if the folder of the data root's recipes cannot be read: shipped recipes would replace them.
    """
    own = root / "recipes"
    if (error := find_folder_error(own)) is not None:
        raise error
    folders = (PROJECT_RECIPES_FOLDER, own)
    return dict(sorted({path.stem: path for folder in folders for path in folder.glob("*.yaml")}.items()))


def find_folder_error(folder: Path) -> RetryableError | None:
    """Return an error if a folder, or a link in its place, cannot be listed.

    Return None if nothing has its name.
    """
    if not os.path.lexists(folder) or (folder.is_dir() and os.access(folder, os.R_OK | os.X_OK)):
        return None
    return RetryableError("the folder cannot be read", folder, "make it readable, or mount the disk of its link")


def recipe_path(name_or_path: str, root: Path) -> Path:
    """Convert a recipe's name or path to its path; UsageError for an unknown name."""
    if name_or_path.endswith((".yaml", ".yml")) or "/" in name_or_path:
        path = Path(name_or_path)
        if not path.exists() and (named := recipe_paths(root).get(path.stem)) is not None:
            raise UsageError("recipe not found", name_or_path, f"did you mean {path.stem}, which is {named}?")
        return path
    known = recipe_paths(root)
    if root.exists() and not root.is_dir():
        raise UsageError("expected a folder, got a file", root, "choose another folder, or move the file away")
    if name_or_path not in known:
        nearest = difflib.get_close_matches(name_or_path, known, n=1)
        fix = f"did you mean {nearest[0]}? For" if nearest else f"choose one of {', '.join(known)}; for"
        fix = f"{fix} a recipe of a data root other than {root}, pass --data"
        raise UsageError("recipe not found", name_or_path, fix)
    read_named_recipe(known[name_or_path])
    return known[name_or_path]


def read_named_recipe(path: Path) -> dict[str, object]:
    """Return a recipe file's values; UsageError if `name` differs from the file name.

    An invalid `name` raises no error here; the checks of the recipe report it.
    """
    values = read_yaml(path)
    name = values.get("name")
    if isinstance(name, str) and _is_name(name.lower()) and name.lower() != path.stem:
        fix = f"rename the file to {name.lower()}.yaml, or run it by its path: artifacts are named after `name`"
        raise UsageError(f"the file name is {path.stem}, but `name` is {name}", locate_key(path, ["name"]), fix)
    return values


def is_used_in(recipe: Recipe, root: Path) -> bool:
    """Check whether a data root contains a recipe's file or one of its artifacts."""
    own = root / "recipes" / f"{recipe.name}.yaml"
    return own.exists() or any((root / target.folder).exists() for target in recipe.targets())


def recipe_names_by_folder(recipes: Iterable[Recipe], root: Path) -> dict[str, str]:
    """Map each artifact folder, both with and without `root`, to its recipe's name."""
    names: dict[str, str] = {}
    for recipe in recipes:
        for target in recipe.targets():
            if not target.is_external:
                names |= {str(target.folder): recipe.name, str(root / target.folder): recipe.name}
    return names


def _is_name(text: str) -> bool:
    """Check whether a text is a valid `Name`."""
    try:
        _NAME.validate_python(text)
    except pydantic.ValidationError:
        return False
    return True
