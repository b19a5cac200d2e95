"""Proof that a case survives a flipped bit in a file that a build reads.

The file is any one below the data root or of the sources: a sealed shard, a row store, a manifest, a cached part of a
hub file or a source file; after a killed build also a work file, a receipt or the plan. Size and times stay the same.
Survival means: sealed artifacts have the digests of an undisturbed run and are whole, or one line names the file.
"""

import multiprocessing
import os
import random
import shutil
import signal
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from crash_cases import CASES, Case, Sources
from crash_points import Victim, count_steps, killed_at
from healing_build import INLINE

from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.spine.artifact import Artifact, Damage, read_manifest, verify
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.manifest import MANIFEST_FILE
from pipeline_assets.systems.registry import SYSTEMS

NAMES = (
    "words: build",
    "snapshot",
    "selection",
    "split train",
    "split valid",
    "dataset: seal in place",
    "split train: rebuild and keep",
    "stage A: normalized",
    "stage A: filtered",
    "stage A: deduplicated",
    "stage A: signatures",
    "stage A: decontaminated",
    "stage A: packed",
    "stage A: report",
    "nemotron: inventory",
    "nemotron: normalized shards",
    "nemotron: hf layout",
)
FLIP_CASES = [case for case in CASES if case.name in NAMES and case.engine is INLINE]  # none that hashes its sources


@dataclass(frozen=True)
class Flip:
    """One flipped bit: of a file, and of what kind this is."""

    path: Path
    role: str
    bit: int


@dataclass(frozen=True)
class Outcome:
    """What came of it: the line that was said, None where the build ended; what was wrong, None where nothing was."""

    flip: Flip
    said: str | None
    wrong: str | None


@dataclass(frozen=True)
class Online(Sources):
    """Sources whose cache is filled again by the hub where it is damaged."""

    @property
    def offline(self) -> HubFiles:
        return HubFiles(self.cache, self.hub.endpoint)


class FlipProof:
    """A case whose inputs are flipped, below `folder`. A source is flipped for the run, and put right again."""

    def __init__(self, case: Case, sources: Sources, folder: Path) -> None:
        self._case, self._sources = case, Online(**vars(sources))
        self._outside = sources.cache.parent
        self._start, self._goal, self._root = (folder / name for name in ("start", "goal", "root"))
        self._start.mkdir(parents=True)
        case.start(sources, self._start, INLINE)
        shutil.copytree(self._start, self._goal)
        case.work(sources, self._goal, INLINE)
        self._built = dict(_digests(self._goal).items() - _digests(self._start).items())
        shutil.copytree(self._start, self._root)
        self._steps = count_steps(lambda: case.work(self._sources, self._root, INLINE), Victim.ALL)
        shutil.rmtree(self._root)

    def run(self, dice: random.Random) -> Outcome:
        """Kills the case at some step, or not at all; flips a bit; goes on."""
        shutil.copytree(self._start, self._root)
        try:
            if dice.random() < 0.7:
                killed_at(dice.randint(1, self._steps), lambda: self._case.work(self._sources, self._root, INLINE))
            return self._flipped(dice)
        finally:
            shutil.rmtree(self._root)

    def _flipped(self, dice: random.Random) -> Outcome:
        path = dice.choice([path for folder in (self._root, self._outside) for path in _files(folder)])
        data, status = bytearray(path.read_bytes()), path.stat()
        flip = Flip(path, self._role(path), dice.randrange(8 * len(data)))
        data[flip.bit // 8] ^= 1 << flip.bit % 8
        untouched = path.read_bytes()
        _overwrite(path, bytes(data), status)
        try:
            return self._outcome(flip)
        finally:
            if path.is_relative_to(self._outside):
                _overwrite(path, untouched, status)

    def _role(self, path: Path) -> str:
        if path.is_relative_to(self._outside):
            return "cached part of a hub's file" if "cache" in path.parts else "source"
        names = path.relative_to(self._root).parts
        if any("building." in name or ".old." in name for name in names):
            return "receipt" if ".receipts" in names else "plan" if names[-1] == ".plan.json" else "work file"
        return "manifest" if names[-1] == MANIFEST_FILE else "sealed file"

    def _outcome(self, flip: Flip) -> Outcome:
        ours, theirs = multiprocessing.Pipe(duplex=False)
        pid = os.fork()
        if pid == 0:
            _go_on(self._case, self._sources, self._root, theirs)
        theirs.close()
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        try:
            said = ours.recv()
        except EOFError:  # nothing was said
            said = None
        if status < 0:
            return Outcome(flip, said, f"it died of {signal.Signals(-status).name}")
        if status == 2:
            return Outcome(flip, said, f"a traceback: {said}")
        if said is not None:
            return Outcome(flip, said, None if _names(said, flip.path) else f"the line doesn't name it: {said}")
        return Outcome(flip, None, self._unlike(flip))

    def _unlike(self, flip: Flip) -> str | None:
        for folder, digest in self._built.items():
            if flip.path == self._root / folder / MANIFEST_FILE:
                continue
            manifest = read_manifest(self._root / folder)
            if manifest is None or manifest.digest != digest:
                return f"{folder} is {manifest.digest if manifest else 'missing'}, undisturbed {digest}"
            artifact = Artifact(self._root / folder, manifest)
            items = [item for item in verify(artifact, SYSTEMS.label_names) if isinstance(item, Damage)]
            damaged = [item for item in items if flip.path != self._root / folder / item.path]
            if damaged:
                return f"{folder}/{damaged[0].path}: {damaged[0].what}"
        return None


def _go_on(case: Case, sources: Sources, root: Path, answers: Connection) -> None:
    try:
        case.work(sources, root, INLINE)
        os._exit(0)
    except InputError as error:
        answers.send(str(error))
        os._exit(1)
    except BaseException as error:
        answers.send(repr(error))
        os._exit(2)


def _digests(root: Path) -> dict[str, str]:
    manifests = {path.parent: read_manifest(path.parent) for path in root.rglob(MANIFEST_FILE)}
    return {folder.relative_to(root).as_posix(): found.digest for folder, found in manifests.items() if found}


def _names(said: str, path: Path) -> bool:
    """Whether a line names the file; of a building folder, which takes another number, the file in it."""
    waiting = [number for number, name in enumerate(path.parts) if "building." in name]
    return "/".join(path.parts[waiting[-1] + 1 :]) in said if waiting else str(path) in said


def _files(folder: Path) -> list[Path]:
    """Files with a bit to flip; not those of the hub, and no locks."""
    found = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix != ".lock"]
    return [path for path in found if path.stat().st_size and path.relative_to(folder).parts[0] != "hub"]


def _overwrite(path: Path, data: bytes, status: os.stat_result) -> None:
    """Other bytes, in a file of its own: other names of what was there keep it."""
    path.unlink(missing_ok=True)
    path.write_bytes(data)
    path.chmod(status.st_mode & 0o7777)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
