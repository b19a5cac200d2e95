"""Recipes that commands write, among those of the data root: what somebody wrote or edited by hand is never lost."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import yaml

from pipeline_assets.corpus.spine import durable
from pipeline_assets.corpus.spine.errors import UsageError
from pipeline_assets.corpus.spine.recipe import RECIPE_FILE, Recipe

_WRITTEN = "# Written by corpusmill {command}, and not again once it was edited: {sha256}\n"
_BEGINS = "# Written by corpusmill "
R = TypeVar("R", bound=Recipe)


def write_recipe_of(
    kind: type[R], content: Mapping[str, object], root: Path, command: str, replace: bool
) -> tuple[R, Path]:
    """The recipe of this content, and its file; not written where it can't be built.

    Args:
        command: that writes it, named in its first line.
        replace: whether what another recipe made may be replaced.
    Raises:
        UsageError: a section can't be what it is, another version of an artifact is sealed in its place, or the file is
            another's.
    """
    path = root / "recipes" / f"{content['name']}.yaml"
    recipe = kind.of(content, path)
    for target in recipe.targets():
        if target.outside is None:
            target.refuse_to_overwrite(root, replace)
    text = _marked(yaml.safe_dump(dict(content), sort_keys=False, allow_unicode=True, width=120), command)
    if path.exists():
        if RECIPE_FILE.bytes_of(path) == text.encode():
            return recipe, path
        _refuse_to_lose(path, recipe, root, command, replace)
    durable.make_folder(path.parent)
    durable.write_durably(path, text.encode("utf-8"))
    return recipe, path


def _marked(content: str, command: str) -> str:
    """A recipe as it is written: its first line tells whether it was edited since."""
    return _WRITTEN.format(command=command, sha256=hashlib.sha256(content.encode()).hexdigest()[:16]) + content


def _refuse_to_lose(path: Path, recipe: Recipe, root: Path, command: str, replace: bool) -> None:
    """
    Raises:
        UsageError: the recipe in the file was written or edited by hand, or made artifacts that the new one doesn't
            speak of.
    """
    if replace:
        return
    fix = "rename that file, or run with --replace"
    there = RECIPE_FILE.bytes_of(path).decode("utf-8", "replace")
    if not there.startswith(_BEGINS + command):
        raise UsageError("another recipe is there", path, fix)
    if there != _marked(there.partition("\n")[2], command):
        raise UsageError(
            "it was edited since it was written",
            path,
            f"run it with `corpusmill run {path} --data {root} --replace`; or {fix}",
        )
    asked = {target.folder for target in recipe.targets()}
    for target in type(recipe).read(path).targets():
        if target.folder not in asked and target.is_sealed(root):
            raise UsageError(f"the recipe that is there made {target.folder}, this one doesn't", path, fix)
