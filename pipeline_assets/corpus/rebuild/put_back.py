"""A rebuilt copy takes the place of the damaged artifact that it was made after."""

import itertools
from pathlib import Path

from pipeline_assets.corpus.normalize.converted import group_manifest, write_group_manifest
from pipeline_assets.corpus.spine import durable
from pipeline_assets.corpus.spine.artifact import open_artifact, read_manifest
from pipeline_assets.corpus.spine.errors import InputError, Obstacle
from pipeline_assets.corpus.spine.lock import locked
from pipeline_assets.corpus.spine.manifest import Manifest
from pipeline_assets.corpus.spine.sealing import highest_number, leftover, recover_locked

_REPLACED = ".replaced"


def put_back(copy: Path, place: Path, sealed: Manifest, kept: Path) -> Path:
    """Puts the copy in its place; returns the folder where the damaged artifact is kept, `<kept>.replaced`, numbered
    where that is taken.

    The damaged files have a second name there before anything moves. Then the folders are exchanged in one step, so
    that a reader sees the one or the other; where the system can't, as a seal does it, whose recovery undoes a crash.

    Args:
        copy: of the same digest, on the same file system.
        sealed: the manifest of what is expected in the place.
    Raises:
        BuilderBusy: another process builds the artifact.
        Obstacle: it was replaced meanwhile.
        InputError: its place is on another file system.
    """
    with locked(place, highest_number(place)) as lock:
        recover_locked(place)
        if read_manifest(place) != sealed:
            raise Obstacle("it was replaced meanwhile", place, "run the same command again")
        if copy.stat().st_dev != place.stat().st_dev:
            raise InputError(f"it lies on another file system than {copy}", place, "move the copy there by hand")
        aside = _free(kept)
        _link_files(place, aside)
        old = copy
        if not durable.exchange(copy, place):
            old = leftover(place, "old", lock.fence)
            durable.rename(place, old)
            durable.rename(copy, place)
        durable.remove(old)
        if group_manifest(place).exists():
            write_group_manifest(open_artifact(place))
        return aside


def _link_files(folder: Path, target: Path) -> None:
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        linked = target / path.relative_to(folder)
        durable.make_folder(linked.parent)
        durable.link(path, linked)
    for below in (target, *(path for path in target.rglob("*") if path.is_dir())):
        durable.fsync_folder(below)


def _free(kept: Path) -> Path:
    names = itertools.chain([_REPLACED], (f"{_REPLACED}.{number}" for number in itertools.count(2)))
    return next(path for path in (kept.with_name(kept.name + name) for name in names) if not path.exists())
