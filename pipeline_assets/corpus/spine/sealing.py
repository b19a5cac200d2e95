"""Putting a finished building folder in its place, and what is done about a crash in the middle of that.

Layout beside the target `name`: `.name.building.N` (N is the builder's fence) holds the files under their final names,
and `.plan.json` (what is being built), `.receipts/` (which shards are done), `.work/` (what the seal throws away). No
artifact's name begins with a dot, so an artifact `name.old.3` is never taken for what is left of `name`.

The order of the seal, and what a crash after each step leaves behind:
    1. manifest.json is durable in the building folder      → recovery goes on with 2, if all is still as written
    2. .receipts, .work, .plan.json and the right to write are gone → recovery goes on with 3
    3. the folder takes the target's name: by rename, or, when something sealed is there, by exchanging the two folders,
       or, where the system can't, by moving the old one to `.name.old.N` first → recovery finishes, or undoes it
    4. the old folder is removed                             → recovery removes it
A folder that holds a manifest with its own number is the new one; with a smaller number it is the old one.
"""

import contextlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from pipeline_assets.corpus.spine import durable
from pipeline_assets.corpus.spine.artifact import damage_of, read_manifest, readable_manifest
from pipeline_assets.corpus.spine.errors import InputError, RetryableError
from pipeline_assets.corpus.spine.files import OwnFile
from pipeline_assets.corpus.spine.lock import locked
from pipeline_assets.corpus.spine.manifest import FILE_NAME

PLAN = ".plan.json"
RECEIPTS = ".receipts"
WORK = ".work"
BUILDER = "builder"
PLAN_FILE: OwnFile[dict[str, Any]] = OwnFile("plan", 256 << 20, "run its recipe again", dict[str, Any])

Role = Literal["building", "old"]
_LEFTOVER = re.compile(r"\.(.+)\.(building|old)\.([0-9]+)", re.DOTALL)


def recover(target: Path) -> None:
    """A seal that a crash interrupted is finished or undone; one that a live builder has in hand is left to it."""
    if numbered(target, "old") or any(_is_past_building(folder) for folder in building_folders(target)):
        with contextlib.suppress(InputError), locked(target, highest_number(target)):
            recover_locked(target)


def building_folders(target: Path) -> list[Path]:
    """Building folders beside a target, oldest first; without a live builder they wait to be adopted."""
    return numbered(target, "building")


def leftover(target: Path, role: Role, number: int) -> Path:
    """The folder that the builder with a number builds a target in, or moves the old one to."""
    return target.with_name(f".{target.name}.{role}.{number}")


def target_of(folder: Path) -> Path | None:
    """The artifact that a folder of such a name is left of; None for any other name."""
    match = _LEFTOVER.fullmatch(folder.name)
    return folder.with_name(match[1]) if match else None


def numbered(target: Path, role: Role) -> list[Path]:
    """Folders `.name.<role>.<number>` beside a target, by number."""
    found = [path for path in _beside(target) if path.name.startswith(f".{target.name}.{role}.")]
    return sorted((path for path in found if path.is_dir() and not path.is_symlink()), key=_number)


def _beside(target: Path) -> list[Path]:
    """Whatever has the name of a folder that is left of a target."""
    if not target.parent.is_dir():
        return []
    return [path for path in target.parent.iterdir() if target_of(path) == target]


def _number(folder: Path) -> int:
    return int(folder.name.rpartition(".")[2])


def _builder(folder: Path) -> int | None:
    """Which builder sealed a folder; None if nothing readable is sealed there."""
    manifest = readable_manifest(folder)
    return None if manifest is None else manifest.provenance.get(BUILDER)


def highest_number(target: Path) -> int:
    """The highest fence that left a trace beside a target; 0 if none did."""
    return max([*map(_number, _beside(target)), _builder(target) or 0])


def _is_past_building(folder: Path) -> bool:
    """Whether a building folder is being put in place, or being removed: no shard of it can be adopted."""
    return (folder / FILE_NAME).exists() or not (folder / PLAN).exists()


def recover_locked(target: Path) -> None:
    """As `recover`, by a builder that holds the lock. Raises InputError: something that was never sealed lies there."""
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
    """Whether a sealed folder, or one whose seal was cut short, still holds what its builder wrote."""
    manifest = read_manifest(folder)
    return manifest is not None and not any(damage_of(folder, manifest))


def _refuse_foreign(target: Path) -> None:
    """A seal removes what it replaces, so it may only replace what was sealed."""
    is_sealed = (target / FILE_NAME).exists()
    if not is_sealed and target.exists() and not (target.is_dir() and not any(target.iterdir())):
        what = "something is here that is no sealed artifact"
        raise RetryableError(what, target, "move it away, then run the same command")


def protect(folder: Path, paths: Iterable[Path]) -> None:
    """All may read what is sealed and nobody may write to its files, whatever the umask was.

    Only its owner may put files into its folders or take them away, and, to replace it, a group that shares the folder
    it lies in.
    """
    of_group = 0o020 if durable.is_shared(folder.parent) else 0
    for path in (folder, *paths):
        durable.set_mode(path, 0o755 | of_group if path.is_dir() else 0o444)


def finish(folder: Path, target: Path, fence: int) -> None:
    """Steps 2 to 4 of the seal."""
    for name in (RECEIPTS, WORK, PLAN):
        durable.remove(folder / name)
    protect(folder, sorted(folder.rglob("*")))
    durable.fsync_folder(folder)
    put_in_place(folder, target, fence)


def put_in_place(folder: Path, target: Path, fence: int) -> None:
    """Steps 3 and 4 of the seal."""
    if not target.exists():
        durable.rename(folder, target)
    elif durable.exchange(folder, target):
        durable.remove(folder)
    else:
        old = leftover(target, "old", fence)
        durable.rename(target, old)
        durable.rename(folder, target)
        durable.remove(old)
