"""Putting a finished building folder in its place, and what is done about a crash in the middle of that.

Layout beside the target `name`: `name.building.N` (N is the builder's fence) holds the files under their final names,
and `.plan.json` (what is being built), `.receipts/` (which shards are done), `.work/` (what the seal throws away).

The order of the seal, and what a crash after each step leaves behind:
    1. manifest.json is durable in the building folder      → recovery goes on with 2, if all is still as written
    2. .receipts, .work and .plan.json are gone              → recovery goes on with 3
    3. the folder takes the target's name: by rename, or, when something sealed is there, by exchanging the two folders,
       or, where the system can't, by moving the old one to `name.old.N` first → recovery finishes, or undoes it
    4. the old folder is removed                             → recovery removes it
A folder that holds a manifest with its own number is the new one; with a smaller number it is the old one.
"""

import contextlib
from pathlib import Path
from typing import Any

from pipeline_assets.corpus.spine import durable
from pipeline_assets.corpus.spine.artifact import Damage, read_manifest, verify_stored
from pipeline_assets.corpus.spine.errors import InputError, Obstacle
from pipeline_assets.corpus.spine.lock import locked
from pipeline_assets.corpus.spine.manifest import FILE_NAME
from pipeline_assets.corpus.spine.own_files import OwnFile

PLAN = ".plan.json"
RECEIPTS = ".receipts"
WORK = ".work"
BUILDER = "builder"
PLAN_FILE: OwnFile[dict[str, Any]] = OwnFile("plan", 256 << 20, "run its recipe again", dict[str, Any])


def recover(target: Path) -> None:
    """A seal that a crash interrupted is finished or undone; one that a live builder has in hand is left to it."""
    if numbered(target, "old") or any(_is_past_building(folder) for folder in building_folders(target)):
        with contextlib.suppress(InputError), locked(target, highest_number(target)):
            recover_locked(target)


def building_folders(target: Path) -> list[Path]:
    """Building folders beside a target, oldest first; without a live builder they wait to be adopted."""
    return numbered(target, "building")


def numbered(target: Path, role: str) -> list[Path]:
    """Folders `name.<role>.<number>` beside a target, by number."""
    prefix = f"{target.name}.{role}."
    if not target.parent.is_dir():
        return []
    found = [path for path in target.parent.iterdir() if path.name.startswith(prefix)]
    return sorted((path for path in found if is_number(path.name.removeprefix(prefix))), key=_number)


def is_number(word: str) -> bool:
    """Whether a word is a number as a folder's name has it: `²` is a digit, but none of ours."""
    return word.isascii() and word.isdigit()


def _number(folder: Path) -> int:
    return int(folder.name.rpartition(".")[2])


def _builder(folder: Path) -> int | None:
    """Which builder sealed a folder; None if nothing readable is sealed there."""
    try:
        manifest = read_manifest(folder)
    except InputError:
        return None
    return None if manifest is None else manifest.provenance.get(BUILDER)


def highest_number(target: Path) -> int:
    """The highest fence that left a trace beside a target; 0 if none did."""
    numbers = [_number(folder) for role in ("building", "old") for folder in numbered(target, role)]
    return max([*numbers, _builder(target) or 0])


def _is_past_building(folder: Path) -> bool:
    """Whether a building folder is being put in place, or being removed: no shard of it can be adopted."""
    return (folder / FILE_NAME).exists() or not (folder / PLAN).exists()


def recover_locked(target: Path) -> None:
    """As `recover`, by a builder that holds the lock.

    Raises:
        InputError: something that was never sealed lies there.
    """
    _refuse_foreign(target)
    for folder in filter(_is_past_building, building_folders(target)):
        builder = _builder(folder)
        if builder == _number(folder) and _is_as_written(folder):
            finish(folder, target, builder)
        else:
            durable.remove(folder)
    for old in numbered(target, "old"):
        if target.exists():
            durable.remove(old)
        else:
            durable.rename(old, target)


def _is_as_written(folder: Path) -> bool:
    """Whether a folder whose seal was cut short still holds what its builder wrote; else it is built again."""
    manifest = read_manifest(folder)
    return manifest is not None and not any(isinstance(item, Damage) for item in verify_stored(folder, manifest))


def _refuse_foreign(target: Path) -> None:
    """A seal removes what it replaces, so it may only replace what was sealed."""
    is_sealed = (target / FILE_NAME).exists()
    if not is_sealed and target.exists() and not (target.is_dir() and not any(target.iterdir())):
        what = "something is here that is no sealed artifact"
        raise Obstacle(what, target, "move it away, then run the same command")


def finish(folder: Path, target: Path, fence: int) -> None:
    """Steps 2 to 4 of the seal."""
    for name in (RECEIPTS, WORK, PLAN):
        durable.remove(folder / name)
    durable.fsync_folder(folder)
    if not target.exists():
        durable.rename(folder, target)
    elif durable.exchange(folder, target):
        durable.remove(folder)
    else:
        old = target.with_name(f"{target.name}.old.{fence}")
        durable.rename(target, old)
        durable.rename(folder, target)
        durable.remove(old)
