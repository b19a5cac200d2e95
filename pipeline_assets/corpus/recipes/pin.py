"""Moves a recipe to another commit: the one line changes, comments and order stay."""

import re
from pathlib import Path

from pipeline_assets.corpus.recipes.systems import read_recipe
from pipeline_assets.corpus.spine import durable
from pipeline_assets.corpus.spine.errors import UsageError


def pin_recipe(path: Path, dataset: str, commit: str) -> str:
    """Writes `commit` as the recipe's revision of `dataset`.

    Returns:
        the revision that was there before.
    Raises:
        UsageError: the recipe reads another dataset.
    """
    recipe = read_recipe(path)
    if recipe.snapshot.dataset != dataset:
        fix = f"give a recipe of {dataset}, or pin {recipe.snapshot.dataset}"
        raise UsageError(f"this recipe reads {recipe.snapshot.dataset}, not {dataset}", path, fix)
    before = recipe.snapshot.revision
    if before != commit:
        text = path.read_text(encoding="utf-8")
        line = re.compile(rf"^(\s*revision:\s*[\"']?){before}\b", re.MULTILINE)
        pinned, changes = line.subn(rf"\g<1>{commit}", text)
        if changes != 1:
            raise UsageError(
                f"{changes} lines read `revision: {before}`", path, "write the revision on a line of its own"
            )
        durable.write_durably(path, pinned.encode())
    return before
