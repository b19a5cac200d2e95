"""The command `gc`, which removes folders that no recipe and no artifact needs."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

import typer

from pipeline_assets.build.garbage import Garbage, Survey
from pipeline_assets.build.recipe_paths import recipe_paths
from pipeline_assets.build.recipe_versions import old_version_names
from pipeline_assets.commands import terminal
from pipeline_assets.corpus.readers.hub_files import CACHE_FOLDER
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.plural import pluralize
from pipeline_assets.spine.usage import folder_bytes, reclaimable_bytes
from pipeline_assets.systems.registry import SYSTEMS

_UNIT_SECONDS = {"h": 3600, "d": 86_400}


def gc(
    apply: Annotated[bool, typer.Option("--apply", help="Remove the listed folders.")] = False,
    older_than: Annotated[str, typer.Option(metavar="AGE", help="Minimum age, such as 30d or 12h.")] = "0d",
    keep_versions: Annotated[int | None, typer.Option(min=1, help="Newest versions to keep. Default: all.")] = None,
    data: terminal.Root = Path("data"),
    as_json: terminal.AsJson = False,
) -> None:
    """List or remove folders that no recipe and no artifact needs.

    Example: corpusmill gc --older-than 30d --data data
    """
    root, age = terminal.require_root(data), re.fullmatch(r"([0-9]{1,6})([hd])", older_than)
    if age is None:
        what = f"must be up to six digits and `h` or `d`, such as 12h or 30d, got {older_than!r}"
        raise UsageError(what, "--older-than", "correct it")
    ignored = {
        old for name in recipe_paths(root) if keep_versions for old in old_version_names(name, root, keep_versions)
    }
    survey = Survey(root, SYSTEMS, int(age[1]) * _UNIT_SECONDS[age[2]], ignored)
    sizes = {entry: folder_bytes(entry.folder) for entry in survey.garbage}
    total = freed = reclaimable_bytes(entry.folder for entry in sizes)
    terminal.print_lines(() if as_json else _garbage_lines(root, survey, sizes))
    summary = f"removing these frees {terminal.format_bytes(total)}; to do so, add --apply"
    if apply:
        survey.remove(survey.garbage)
        remaining = [entry.folder for entry in sizes if entry.folder.exists() and any(entry.folder.iterdir())]
        freed -= reclaimable_bytes(remaining)
        summary = f"removed {len(sizes) - len(remaining):,} of {len(sizes):,}, freed {terminal.format_bytes(freed)}"
        summary += "; the rest is in use, or belongs to another user" if remaining else ""
    content = {
        "data": data,
        "garbage": [{"folder": entry.folder, "reason": entry.reason, "bytes": size} for entry, size in sizes.items()],
        "bytes": total,
        "bytes_freed": freed if apply else 0,
        "unfinished": survey.unfinished,
        "named": survey.user_folders,
        "doubts": list(map(str, survey.errors)),
    }
    terminal.print_answer(as_json, content, [summary if sizes else "nothing to remove"])


def _garbage_lines(root: Path, survey: Survey, bytes_by_garbage: Mapping[Garbage, int]) -> Iterator[str]:
    """Yield lines on removable folders, kept folders and errors that limit removal."""
    rows_by_path = {entry.folder.relative_to(root): (size, entry.reason) for entry, size in bytes_by_garbage.items()}
    listed = {path: size for path, size in rows_by_path.items() if path.parts[0] != CACHE_FOLDER}
    cached = [size for path, (size, _) in rows_by_path.items() if path not in listed]
    if cached:
        files = pluralize(len(cached), "file")
        listed[Path(CACHE_FOLDER)] = sum(cached), f"{files} that no artifact and no recipe names"
    rows = [(str(path), terminal.format_bytes(size), reason) for path, (size, reason) in listed.items()]
    yield from terminal.align(rows, (1,))
    for path in survey.unfinished:
        yield f"kept: {path.relative_to(root)}, an unfinished build of {terminal.format_bytes(folder_bytes(path))}"
    for path in survey.user_folders:
        yield f"kept: {path.relative_to(root)}, built without a recipe in the data root, or pulled or copied here"
    for doubt in survey.errors:
        yield f"WARNING {doubt}; until then only leftovers are removed"
