"""Proof that a case survives a kill before each step, from every start.

Survival means: right after the kill every sealed artifact is whole; after a resumed run every file has the bytes of an
undisturbed run, except for the times in manifests; no temporary file and no staging directory is left.
"""

import errno
import hashlib
import json
import os
import random
import shutil
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from crash_cases import Case, Sources, Work
from crash_points import Victim, count_steps, kill_at
from healing_build import INLINE
from power_loss import Disk, Tree, followed, write_tree

from pipeline_assets.spine import durable, folder_exchange
from pipeline_assets.spine.artifact import Artifact, Damage, verify
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.manifest import MANIFEST_FILE, Manifest
from pipeline_assets.spine.sealed_folder import require_manifest
from pipeline_assets.systems.registry import SYSTEMS


@dataclass(frozen=True)
class Point:
    """Kill before the `at`-th step, counted from 1, of a run that begins at `start`."""

    start: Path
    at: int


@dataclass(frozen=True)
class Outcome:
    """Kind of the step before the kill (None: the case ended first), and errors."""

    killed_before: str | None
    wrong: list[str]


@dataclass(frozen=True)
class PowerLoss:
    """Disk after a power loss; `is_over` if the work had ended: nothing may be lost."""

    badness: str
    disk: Tree
    is_over: bool


class Proof:
    """Case that is killed at each of its steps, and the result of a normal run."""

    def __init__(self, case: Case, sources: Sources, folder: Path) -> None:
        self._case, self._sources, self._folder = case, sources, folder
        start = folder / "start"
        copy_tree(self._folder_after(case.start), start)
        self._undisturbed = contents(self._folder_after(case.start, case.interrupted or case.work))
        self._interruptions = 1 if case.interrupted is None else self._steps(start, case.interrupted)

    def starts(self) -> list[Path]:
        """Return the start folder, or the different results of all interruptions."""
        starts = [self._start(number) for number in range(self._interruptions)]
        return list({json.dumps(contents(start)): start for start in starts}.values())

    def some_start(self, dice: random.Random) -> Path:
        """Choose a start at random."""
        return self._start(dice.randrange(self._interruptions))

    def points(self) -> list[Point]:
        """List every step of every start."""
        return [Point(start, at) for start in self.starts() for at in range(1, self._steps(start, self._case.work) + 1)]

    def some_point(self, dice: random.Random) -> Point:
        """Choose a step at random."""
        start = self.some_start(dice)
        return Point(start, dice.randint(1, self._steps(start, self._case.work)))

    def run(self, point: Point) -> Outcome:
        """Kill the case at a point, resume it, and return the errors."""
        case, root = self._case, self._folder / "root"
        copy_tree(point.start, root)
        kind = self._killed(case.work, root, point.at, case.engine, case.victim)
        wrong = unsound(root) + self._wrong_after_going_on(root)
        shutil.rmtree(root)
        return Outcome(kind, wrong)

    def power_losses(self, start: Path) -> list["PowerLoss"]:
        """List the possible disks before each step and after the last, without repeats."""
        losses: dict[object, PowerLoss] = {}

        def note(disk: Disk, is_over: bool = False) -> None:
            for badness, tree in disk.after_power_loss(seed=f"{len(losses)}").items():
                losses.setdefault((is_over, _frozen(tree)), PowerLoss(badness, tree, is_over))

        root = self._folder / "followed"
        copy_tree(start, root)
        with self._system(), followed(root, note) as disk:
            self._case.work(self._sources, root, INLINE)
        note(disk, is_over=True)
        shutil.rmtree(root)
        return list(losses.values())

    def after(self, loss: "PowerLoss") -> list[str]:
        """List the errors on the disk, and after resuming from it."""
        root = self._folder / "root"
        write_tree(loss.disk, root)
        wrong = unsound(root)
        if loss.is_over and self._case.resume is None:
            wrong += [f"not durable: {item}" for item in lost(contents(root), self._undisturbed)]
        with mock.patch.object(durable, "boot_id", lambda: "the next"):
            wrong += self._wrong_after_going_on(root)
        shutil.rmtree(root)
        return wrong

    def _wrong_after_going_on(self, root: Path) -> list[str]:
        try:
            self._run(self._case.resume or self._case.work, root)
        except Exception as error:
            return [f"it can't go on: {error!r}"]
        found = contents(root)
        return lost(found, self._undisturbed) + left_over(found, self._undisturbed)

    def _folder_after(self, *works: Work) -> Path:
        """Return the folder that works leave, run once for all cases and only read."""
        starts, key = self._sources.starts, (self._case.lacks, *works)
        if key not in starts:
            folder = Path(tempfile.mkdtemp(dir=self._sources.cache.parent), "root")
            if works[1:]:
                copy_tree(self._folder_after(*works[:-1]), folder)
            else:
                folder.mkdir()
            self._run(works[-1], folder)
            starts[key] = folder
        return starts[key]

    def _start(self, number: int) -> Path:
        """Return the start, or the folder after an interruption before that step."""
        if self._case.interrupted is None:
            return self._folder / "start"
        folder = self._folder / f"start{number}"
        if not folder.exists():
            copy_tree(self._folder / "start", folder)
            self._killed(self._case.interrupted, folder, number + 1, INLINE, Victim.ALL)
        return folder

    def _steps(self, start: Path, work: Work) -> int:
        root = self._folder / "counted"
        copy_tree(start, root)
        with self._system():
            steps = count_steps(self._action(work, root, self._case.engine), self._case.victim)
        shutil.rmtree(root)
        return steps

    def _killed(self, work: Work, root: Path, at: int, engine: RunSettings, victim: Victim) -> str | None:
        with self._system():
            return kill_at(at, self._action(work, root, engine), victim)

    def _run(self, work: Work, root: Path) -> None:
        with self._system():
            work(self._sources, root, INLINE)

    def _action(self, work: Work, root: Path, engine: RunSettings) -> Callable[[], None]:
        return lambda: work(self._sources, root, engine)

    def _system(self) -> AbstractContextManager[object]:
        """Patch out the operation that the case's system lacks."""
        match self._case.lacks:
            case "exchange":
                return mock.patch.object(folder_exchange, "exchange", lambda first, second: False)
            case "link":
                return mock.patch.object(os, "link", side_effect=OSError(errno.EPERM, "no links here"))
        return nullcontext()


def _frozen(tree: Tree) -> object:
    """Return a tree as a hashable key that shares its bytes."""
    return tuple((name, node if isinstance(node, bytes) else _frozen(node)) for name, node in tree.items())


def copy_tree(source: Path, target: Path) -> None:
    """Copy a folder; sealed files, which are read-only, become hard links."""

    def copied(file: str, to: str) -> None:
        if os.stat(file).st_mode & 0o222:
            shutil.copyfile(file, to)
        else:
            os.link(file, to)

    shutil.copytree(source, target, copy_function=copied)


def unsound(root: Path) -> list[str]:
    """List damage that a reader finds in the sealed artifacts of a root."""
    sealed = [path.parent for path in root.rglob(MANIFEST_FILE) if not _is_aside(path.relative_to(root))]
    try:
        damaged = [
            item
            for folder in sealed
            for item in verify(Artifact(folder, require_manifest(folder)), SYSTEMS.label_names)
            if isinstance(item, Damage)
        ]
    except InputError as edited:
        return [f"a reader can't open it: {edited}"]
    return [f"a reader sees {item.path}: {item.what}" for item in damaged]


def _is_aside(path: Path) -> bool:
    """Check whether a path is in a folder that no reader opens."""
    return any(f".{role}." in part for part in path.parts for role in ("building", "old"))


def contents(root: Path) -> dict[str, str]:
    """Return the content hash of each path but locks, ignoring recorded times."""
    paths = [path for path in sorted(root.rglob("*")) if path.suffix != ".lock"]
    manifests = {path: Manifest.from_bytes(path.read_bytes(), path) for path in paths if path.name == MANIFEST_FILE}
    labels = {path.parent / name for path, manifest in manifests.items() for name in _labels(manifest)}
    return {path.relative_to(root).as_posix(): _content(path, manifests.get(path), path in labels) for path in paths}


def _content(path: Path, manifest: Manifest | None, is_label: bool) -> str:
    if path.is_dir():
        return "a folder"
    if manifest is not None:
        labels = _labels(manifest)
        return json.dumps([manifest.digest, *(vars(file) for file in manifest.storage if file.path not in labels)])
    return "a label" if is_label else hashlib.sha256(path.read_bytes()).hexdigest()


def _labels(manifest: Manifest) -> set[str]:
    return {file.path for file in manifest.storage} - {file.path for file in manifest.identity.files}


def lost(found: dict[str, str], expected: dict[str, str]) -> list[str]:
    """List expected files that are missing or differ."""
    missing = [f"{path}: missing" for path in expected.keys() - found.keys()]
    other = [f"{path}: differs" for path in expected.keys() & found.keys() if found[path] != expected[path]]
    return sorted(missing + other)


def left_over(found: dict[str, str], expected: dict[str, str]) -> list[str]:
    """List unexpected files."""
    return sorted(f"{path}: left over" for path in found.keys() - expected.keys())
