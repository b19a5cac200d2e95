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
from crash_points import Victim, count_steps, kill_at
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
    """Flipped bit of a file, with the role of the file."""

    path: Path
    role: str
    bit: int


@dataclass(frozen=True)
class Outcome:
    """Outcome of a flip: the error line, or None; the fault, or None."""

    flip: Flip
    line: str | None
    wrong: str | None


@dataclass(frozen=True)
class Online(Sources):
    """Sources whose hub refills a damaged cache."""

    @property
    def offline(self) -> HubFiles:
        return HubFiles(self.cache, self.hub.endpoint)


class FlipProof:
    """Case whose inputs are flipped; a flipped source is restored after the run."""

    def __init__(self, case: Case, sources: Sources, folder: Path) -> None:
        self._case, self._sources = case, Online(**vars(sources))
        self._source_folder = sources.cache.parent
        self._start, self._expected, self._root = (folder / name for name in ("start", "goal", "root"))
        self._start.mkdir(parents=True)
        case.start(sources, self._start, INLINE)
        shutil.copytree(self._start, self._expected)
        case.work(sources, self._expected, INLINE)
        self._built = dict(_digests(self._expected).items() - _digests(self._start).items())
        shutil.copytree(self._start, self._root)
        self._steps = count_steps(lambda: case.work(self._sources, self._root, INLINE), Victim.ALL)
        shutil.rmtree(self._root)

    def run(self, dice: random.Random) -> Outcome:
        """Kill the case at some step, or never; flip a bit; resume."""
        shutil.copytree(self._start, self._root)
        try:
            if dice.random() < 0.7:
                kill_at(dice.randint(1, self._steps), lambda: self._case.work(self._sources, self._root, INLINE))
            return self._flipped(dice)
        finally:
            shutil.rmtree(self._root)

    def _flipped(self, dice: random.Random) -> Outcome:
        path = dice.choice([path for folder in (self._root, self._source_folder) for path in _files(folder)])
        data, status = bytearray(path.read_bytes()), path.stat()
        flip = Flip(path, self._role(path), dice.randrange(8 * len(data)))
        data[flip.bit // 8] ^= 1 << flip.bit % 8
        untouched = path.read_bytes()
        _overwrite(path, bytes(data), status)
        try:
            return self._outcome(flip)
        finally:
            if path.is_relative_to(self._source_folder):
                _overwrite(path, untouched, status)

    def _role(self, path: Path) -> str:
        if path.is_relative_to(self._source_folder):
            return "cached part of a hub's file" if "cache" in path.parts else "source"
        names = path.relative_to(self._root).parts
        if any("building." in name or ".old." in name for name in names):
            return "receipt" if ".receipts" in names else "plan" if names[-1] == ".plan.json" else "work file"
        return "manifest" if names[-1] == MANIFEST_FILE else "sealed file"

    def _outcome(self, flip: Flip) -> Outcome:
        ours, theirs = multiprocessing.Pipe(duplex=False)
        pid = os.fork()
        if pid == 0:
            _resume(self._case, self._sources, self._root, theirs)
        theirs.close()
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        try:
            line = ours.recv()
        except EOFError:  # no error
            line = None
        if status < 0:
            return Outcome(flip, line, f"it died of {signal.Signals(-status).name}")
        if status == 2:
            return Outcome(flip, line, f"a traceback: {line}")
        if line is not None:
            return Outcome(flip, line, None if _names(line, flip.path) else f"the line doesn't name it: {line}")
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


def _resume(case: Case, sources: Sources, root: Path, answers: Connection) -> None:
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


def _names(line: str, path: Path) -> bool:
    """Check whether a line names the file; staging directories change numbers."""
    waiting = [number for number, name in enumerate(path.parts) if "building." in name]
    return "/".join(path.parts[waiting[-1] + 1 :]) in line if waiting else str(path) in line


def _files(folder: Path) -> list[Path]:
    """List files with a bit to flip, except those of the hub and locks."""
    found = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix != ".lock"]
    return [path for path in found if path.stat().st_size and path.relative_to(folder).parts[0] != "hub"]


def _overwrite(path: Path, data: bytes, status: os.stat_result) -> None:
    """Write other bytes to a new inode, so that hard links keep the old ones."""
    path.unlink(missing_ok=True)
    path.write_bytes(data)
    path.chmod(status.st_mode & 0o7777)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
