"""The command `gc`, which removes what no recipe and no artifact needs."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from pipeline_assets.build.garbage import Collector, Garbage, Needs
from pipeline_assets.build.recipe_paths import recipe_paths
from pipeline_assets.build.recipe_versions import old_versions
from pipeline_assets.commands import terminal
from pipeline_assets.corpus.readers.hub_files import CACHE_FOLDER
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.usage import folder_bytes, freed_bytes
from pipeline_assets.systems.registry import SYSTEMS

_HOUR_S = {"h": 3600, "d": 86_400}


def gc(
    apply: Annotated[bool, typer.Option("--apply", help="Remove the listed folders.")] = False,
    older_than: Annotated[str, typer.Option(metavar="AGE", help="Minimum age, such as 30d or 12h.")] = "0d",
    keep_versions: Annotated[int | None, typer.Option(min=1, help="Newest versions to keep. Default: all.")] = None,
    data: terminal.Root = Path("data"),
    as_json: terminal.AsJson = False,
) -> None:
    """List or remove what no recipe and no artifact needs.

    Example: corpusmill gc --older-than 30d --data data
    """
    root, age = terminal.existing_root(data), re.fullmatch(r"([0-9]{1,6})([hd])", older_than)
    if age is None:
        raise UsageError(f"must be hours or days, such as 12h or 30d, got {older_than!r}", "--older-than", "correct it")
    ignored = {old for name in recipe_paths(root) if keep_versions for old in old_versions(name, root, keep_versions)}
    collector = Collector(root, SYSTEMS, int(age[1]) * _HOUR_S[age[2]], ignored)
    garbage, needs = collector.find()
    sizes, total = {entry: folder_bytes(entry.folder) for entry in garbage}, _freed_bytes(garbage)
    terminal.print_lines(() if as_json else _lines(root, sizes, needs))
    if apply:
        collector.remove(garbage, needs.sealed)
    remaining = [entry for entry in garbage if entry.folder.exists() and any(entry.folder.iterdir())]
    freed = total - _freed_bytes(remaining) if apply else 0
    content = {
        "data": data,
        "garbage": [{"folder": entry.folder, "reason": entry.reason, "bytes": size} for entry, size in sizes.items()],
        "bytes": total,
        "bytes_freed": freed,
        "unfinished": needs.unfinished,
        "named": needs.named,
        "doubts": list(map(str, needs.doubts)),
    }
    summary = f"removing these frees {terminal.format_bytes(total)}; to do so, add --apply"
    if apply:
        summary = f"removed {len(garbage) - len(remaining):,} of {len(garbage):,}, freed {terminal.format_bytes(freed)}"
        summary += "; the rest is in use by now" if remaining else ""
    terminal.answer(as_json, content, [summary if garbage else "nothing to remove"])


def _freed_bytes(garbage: Sequence[Garbage]) -> int:
    return freed_bytes(entry.folder for entry in garbage)


def _lines(root: Path, sizes: Mapping[Garbage, int], needs: Needs) -> Iterator[str]:
    """Yield lines of artifacts, leftovers, cached files, kept builds and doubts."""
    cached = [size for entry, size in sizes.items() if entry.artifact is None]
    rows = [
        (str(entry.folder.relative_to(root)), size, entry.reason) for entry, size in sizes.items() if entry.artifact
    ]
    if cached:
        files = terminal.pluralize(len(cached), "file")
        rows.append((CACHE_FOLDER, sum(cached), f"{files} that no artifact and no recipe names"))
    yield from terminal.aligned([(name, terminal.format_bytes(size), reason) for name, size, reason in rows], (1,))
    for path in needs.unfinished:
        yield f"kept: {path.relative_to(root)}, an unfinished build of {terminal.format_bytes(folder_bytes(path))}"
    for path in needs.named:
        yield f"kept: {path.relative_to(root)}, which a command built without a recipe, or which was copied here"
    for doubt in needs.doubts:
        yield f"WARNING {doubt}; until then only leftovers are removed"
