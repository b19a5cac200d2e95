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
    revisions = read_recipe(path).revisions()
    commits = {revision for name, revision in revisions if name == dataset}
    if not commits:
        read = ", ".join(sorted({name for name, _ in revisions})) or "no hub dataset"
        raise UsageError(f"this recipe reads {read}, not {dataset}", path, f"give a recipe of {dataset}, or pin {read}")
    if len(commits) > 1:
        what = f"it reads {dataset} at {len(commits)} commits"
        raise UsageError(what, path, "pin by hand, or give its sources one commit")
    [before] = commits
    if before != commit:
        text = path.read_text(encoding="utf-8")
        line = re.compile(rf"^(\s*(?:-\s*)?revision:\s*[\"']?){before}\b", re.MULTILINE)
        pinned, changes = line.subn(rf"\g<1>{commit}", text)
        if changes != len([name for name, _ in revisions if name == dataset]):
            raise UsageError(
                f"{changes} lines read `revision: {before}`", path, "write the revision on a line of its own"
            )
        durable.write_durably(path, pinned.encode())
    return before
