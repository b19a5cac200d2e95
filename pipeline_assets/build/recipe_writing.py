"""Recipe files that commands write into a data root.

A recipe that a person wrote or edited is never overwritten without `--replace`.
"""

import contextlib
import hashlib
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import yaml

from pipeline_assets.build.build_target import raise_if_occupied
from pipeline_assets.build.recipe import Recipe
from pipeline_assets.build.target import Target
from pipeline_assets.corpus.filters.own_step import step_file_names
from pipeline_assets.spine import durable
from pipeline_assets.spine.artifact import try_read_manifest
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.folder_lock import lock_folder
from pipeline_assets.spine.lineage import Lineage
from pipeline_assets.spine.recipe_yaml import RECIPE_FORMAT, read_yaml

_HASH_LINE = "# Written by corpusmill {command}, and not again once it was edited: {sha256}\n"
R = TypeVar("R", bound=Recipe)


def write_new_recipe(
    recipe_class: type[R], content: Mapping[str, object], root: Path, command: str, replace: bool
) -> tuple[R, Path]:
    """Write a recipe of `recipe_class` into a data root; return recipe and path.

    Raises:
        UsageError: A value is invalid; or, without `replace`, a different or edited recipe has this name, or the
            recipe's folders contain other artifacts.
        InputError: A local file that the build reads is unusable; or, without `replace`, an artifact is damaged.
    """
    path = root / "recipes" / f"{content['name']}.yaml"
    recipe = recipe_class.from_mapping(content, path)
    for target in recipe.targets():
        if (target.upstream or target.external_inputs is None) and not _may_be_kept(target, root):
            raise_if_occupied(target, root, replace)
    dumped = yaml.safe_dump(dict(content), sort_keys=False, allow_unicode=True, width=120)
    text, present = _add_hash_line(dumped, command).encode(), _read_present(path)
    if present == text:
        return recipe, path
    if present is not None and not replace:
        _raise_if_edited(path, recipe, root, command)
    recipe.check_prerequisites(root)
    durable.make_folder(path.parent)
    with lock_folder(path.parent):  # `init`, `pin` and other commands may write the same recipe
        if not replace and _read_present(path) not in (present, text):
            raise UsageError("another process has just written this recipe", path, "run the same command again")
        durable.write_durably(path, text)
    return recipe, path


@contextlib.contextmanager
def restore_if_refused(root: Path, recipe_name: str, key: str) -> Iterator[None]:
    """Restore a recipe's file if a `with` block ends with a UsageError about `key`.

    A file that did not exist before the block is removed.
    """
    path = root / "recipes" / f"{recipe_name}.yaml"
    before = _read_present(path)
    try:
        yield
    except UsageError as error:
        if error.key == key and _read_present(path) != before:
            if before is None:
                durable.remove(path)
            else:
                durable.write_durably(path, before)
        raise


def _read_present(path: Path) -> bytes | None:
    return RECIPE_FORMAT.read_raw(path) if path.exists() else None


def copy_recipe(path: Path, recipe_name: str, root: Path, replace: bool) -> Path:
    """Copy a recipe file to `recipes/NAME.yaml` in the data root; return that path.

    The Python files of the recipe's own steps are copied, too. Without `replace`, raise UsageError if the data root has
    a different recipe, or a different Python file of a step, with the same name.
    """
    kept = root / "recipes" / f"{recipe_name}.yaml"
    if path.absolute() != kept.absolute():
        step_names = step_file_names(read_yaml(path))
        copies = {kept: path} | {kept.with_name(file): path.with_name(file) for file in step_names}
        texts = {target: RECIPE_FORMAT.read_raw(source) for target, source in copies.items()}
        durable.make_folder(kept.parent)
        with lock_folder(kept.parent):  # `init` and `pin` may write the same recipe
            for target, text in texts.items():
                if _read_present(target) not in (None, text) and not replace:
                    fix = "run that one by its name, rename one of them, or run with --replace"
                    raise UsageError(f"another {'recipe' if target == kept else 'own step'} exists", target, fix)
            for target, text in reversed(texts.items()):  # the recipe last
                if _read_present(target) != text:  # an equal file may be a link, which remains
                    durable.write_durably(target, text)
    return kept


def _add_hash_line(content: str, command: str) -> str:
    """Prepend a line with the content's hash, so that later edits can be detected."""
    return _HASH_LINE.format(command=command, sha256=hashlib.sha256(content.encode()).hexdigest()[:16]) + content


def _raise_if_edited(path: Path, recipe: Recipe, root: Path, command: str) -> None:
    """Raise UsageError if overwriting a recipe file would lose edits or artifacts.

    Edits would be lost if the file differs from what `command` wrote. Artifacts would be lost if `recipe` lacks a built
    target of the old recipe, or would replace a listing that other artifacts need.
    """
    fix = "rename that file, or run with --replace"
    present = RECIPE_FORMAT.read_raw(path).decode("utf-8", "replace")
    if not present.startswith(f"# Written by corpusmill {command}"):
        raise UsageError("another recipe exists", path, fix)
    if present != _add_hash_line(present.partition("\n")[2], command):
        run = shlex.join(["corpusmill", "run", str(path), "--data", str(root)])
        fix = f"run it with `{run} --replace`; or {fix}"
        raise UsageError("the recipe was edited after corpusmill wrote it", path, fix)
    requested = {target.folder: target for target in recipe.targets()}
    for target in type(recipe).read(path).targets():
        new = requested.get(target.folder)
        if new is None and target.matches_recipe(root):
            raise UsageError(f"the recipe in this file built {target.folder}, the new one does not", path, fix)
        if new is not None and new.external_inputs is not None and new != target:
            sealed = try_read_manifest(root / new.folder)
            if sealed is not None and Lineage(root).downstream(sealed.digest):
                raise_if_occupied(new, root, replace=False)


def _may_be_kept(target: Target, root: Path) -> bool:
    """Check whether an artifact remains valid once its missing inputs are rebuilt."""
    sealed = try_read_manifest(root / target.folder)
    if sealed is None or all(try_read_manifest(root / upstream.folder) for upstream in target.upstream):
        return False
    return target.matches_settings(sealed.identity)
