"""A staging folder: shards with receipts, adopted after a crash, sealed last; `sealing` has its layout."""

import hashlib
import json
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pipeline_assets.corpus.spine import durable, sealing
from pipeline_assets.corpus.spine.artifact import Artifact, open_artifact, size_complaint
from pipeline_assets.corpus.spine.errors import InputError, RetryableError
from pipeline_assets.corpus.spine.files import OwnFile, stream_sha256, stream_xxh3
from pipeline_assets.corpus.spine.lock import Lock, locked
from pipeline_assets.corpus.spine.manifest import FILE_NAME, FileContent, Identity, Manifest, StoredFile, lies_inside
from pipeline_assets.corpus.spine.sealing import BUILDER, PLAN, PLAN_FILE, RECEIPTS, WORK, building_folders

RECEIPT_FILE: OwnFile[dict[str, Any]] = OwnFile("receipt", 256 << 20, "run its recipe again", dict[str, Any])
_THREADS = 4  # sha256 lets the others run


@dataclass(frozen=True)
class OutputFile:
    """A finished file of a building folder: how it is stored and what it says.

    Attributes:
        start: where the bytes begin in a file that other shards write too; None where the file is this shard's own.
        xxh3: of a work file; None of others. A work file has no sha256, and is never sealed.
    """

    path: str
    rows: int
    bytes: int
    sha256: str
    content_sha256: str
    start: int | None = None
    xxh3: str | None = None

    @classmethod
    def plain(cls, path: str, rows: int, file: durable.DurableFile) -> "OutputFile":
        """A file that says what it holds as it is stored: nothing is compressed."""
        return cls(path, rows, file.bytes_written, file.sha256, file.sha256)

    @classmethod
    def of_work(cls, path: str, rows: int, file: durable.WorkFile) -> "OutputFile":
        """A file that only other shards, or the end of the build, read."""
        return cls(path, rows, file.bytes_written, "", "", xxh3=file.xxh3)

    @property
    def content(self) -> FileContent:
        return FileContent(self.path, self.rows, self.content_sha256)

    @property
    def stored(self) -> StoredFile:
        if self.xxh3 is not None:
            raise TypeError(f"{self.path} is a work file: nothing that is sealed rests on it")
        return StoredFile(self.path, self.bytes, self.sha256)

    def linked(self, path: str, folder: "BuildFolder") -> "OutputFile":
        """The file under a second name in its folder: done in no time, so no worker does it and no receipt keeps it."""
        durable.link(folder.path(self.path), folder.path(path))
        return replace(self, path=path)


@dataclass(frozen=True)
class Receipt:
    """What one finished shard left: its files, what it counted, what it has to say. `counts` add up, `notes` don't.

    Attributes:
        reads: sha256 of each file that the shard read from its beginning to its end, by path.
    """

    files: Sequence[OutputFile]
    counts: Mapping[str, int]
    notes: Mapping[str, Any] = field(default_factory=dict)
    reads: Mapping[str, str] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """JSON, and in a line of its own before it the sha256 of that."""
        said = json.dumps({**vars(self), "files": [vars(file) for file in self.files]}, sort_keys=True).encode()
        return hashlib.sha256(said).hexdigest().encode() + b"\n" + said

    @classmethod
    def from_bytes(cls, data: bytes) -> "Receipt | None":
        """What `to_bytes` wrote; None where a bit of it is another, or some of it is missing."""
        sha256, _, said = data.partition(b"\n")
        if hashlib.sha256(said).hexdigest().encode() != sha256:
            return None
        value = json.loads(said)
        return cls(**{**value, "files": [OutputFile(**file) for file in value["files"]]})


def total_counts(receipts: Iterable[Receipt]) -> dict[str, int]:
    """Counts of many receipts added up, keys sorted."""
    totals = Counter[str]()
    for receipt in receipts:
        totals.update(receipt.counts)
    return dict(sorted(totals.items()))


@dataclass(frozen=True)
class BuildFolder:
    """The part of a building folder that workers see: where files go and where receipts are written."""

    folder: Path

    def path(self, name: str) -> Path:
        """Where to write the file `name`; its folder is made.

        Raises:
            InputError: another builder took the building folder over, which then has another name.
        """
        path = self.folder / name
        if not path.parent.is_dir():
            if not self.folder.is_dir():
                what = "the building folder is gone"
                raise RetryableError(what, self.folder, "another builder took over; nothing was sealed")
            durable.make_folder(path.parent)
        return path

    def write(self, name: str, data: bytes) -> OutputFile:
        """A file of these bytes, which counts as one row."""
        with durable.DurableFile(self.path(name)) as file:
            file.write(data)
        return OutputFile.plain(name, 1, file)

    def commit(self, stage: str, shard: str, receipt: Receipt) -> None:
        """From now on this shard of this stage is done, whatever happens."""
        durable.write_durably(self.path(self._receipt_name(stage, shard)), receipt.to_bytes())

    def receipt(self, stage: str, shard: str) -> Receipt | None:
        """The receipt of a finished shard; None if it is not finished, or its receipt is damaged."""
        return _read_receipt(self.folder / self._receipt_name(stage, shard))

    def forget(self, stage: str, shard: str) -> None:
        """No receipt is there of this shard of this stage; it may be that none was."""
        durable.remove(self.folder / self._receipt_name(stage, shard))

    def finished_shards(self, stage: str = "*") -> int:
        """How many shards have a receipt, of all stages or of one; those of a stage with a dot are none of shards."""
        found = (self.folder / RECEIPTS).glob(f"{stage}/*.json")
        return sum("." not in path.parent.name for path in found)

    def _receipt_name(self, stage: str, shard: str) -> str:
        return f"{RECEIPTS}/{stage}/{shard}.json"


@dataclass(frozen=True)
class StagingDir(BuildFolder):
    """An open building folder and the lock on it; `was_begun` by a build that died or failed."""

    target: Path
    lock: Lock
    was_begun: bool = False

    def seal(
        self, kind: str, name: str, identity: Identity, stored: Sequence[StoredFile], provenance: Mapping[str, Any]
    ) -> Artifact:
        """The finished artifact, in its place.

        Raises:
            InputError: the lock was lost, or a file is not there with its size.
        """
        self.lock.check()
        manifest = Manifest(kind, name, identity, list(stored), {**provenance, BUILDER: self.lock.fence})
        for file in stored:
            if size_complaint(self.folder, file) is not None:
                what = f"the file is gone, or no longer has the {file.bytes:,} bytes that were written"
                raise RetryableError(what, self.folder / file.path, "run the command again")
        _sweep(self.folder, {file.path for file in stored}, keep=(PLAN, RECEIPTS, WORK))
        for folder in sorted({(self.folder / file.path).parent for file in stored}):
            durable.fsync_folder(folder)
        self.lock.check()
        durable.write_durably(self.folder / FILE_NAME, manifest.to_bytes())
        sealing.finish(self.folder, self.target, self.lock.fence)
        return open_artifact(self.target, manifest.digest)

    def discard(self) -> None:
        """The building folder is gone: another builder has sealed the artifact."""
        durable.remove(self.folder)

    def discard_unstarted(self) -> None:
        """The building folder is gone if no shard of it is finished: nobody could go on from it."""
        if not any((self.folder / RECEIPTS).rglob("*.json")):
            self.discard()


@contextmanager
def open_building(target: Path, plan: Mapping[str, Any]) -> Iterator[StagingDir]:
    """The building folder for `target`, alone: recovered after a crash, with the shards of an equal plan adopted.

    Args:
        plan: what is being built; a folder with another plan is thrown away.
    Raises:
        InputError: another process builds the same target, or something that was never sealed lies there.
    """
    with locked(target, sealing.highest_number(target)) as lock:
        sealing.recover_locked(target)
        was_begun = bool(building_folders(target))
        folder = _adopt(target, plan, lock.fence)
        try:
            yield StagingDir(folder, target, lock, was_begun)
        except Exception:
            lock.check()  # what fails in a folder that another builder took over fails for that
            raise


def seal_in_place(
    target: Path,
    kind: str,
    name: str,
    identity: Identity,
    provenance: Mapping[str, Any],
    is_sealed: Callable[[], bool] = lambda: False,
) -> Artifact:
    """An artifact whose content is its members, folders that lie in `target`, or files from elsewhere: its manifest is
    all that is written.

    Args:
        is_sealed: asked under the lock, whether another builder was faster: what it sealed may be read already.
    """
    durable.make_folder(target)
    with locked(target, sealing.highest_number(target)) as lock:
        if is_sealed():
            return open_artifact(target)
        manifest = Manifest(kind, name, identity, [], {**provenance, BUILDER: lock.fence})
        durable.write_durably(target / FILE_NAME, manifest.to_bytes())
        sealing.protect(target, [target / FILE_NAME])
    return open_artifact(target, manifest.digest)


def _adopt(target: Path, plan: Mapping[str, Any], fence: int) -> Path:
    """The newest building folder of an equal plan under this builder's number, swept; else an empty one.

    The rename is what fences off an earlier builder that still runs: its paths are gone.
    """
    folder = sealing.leftover(target, "building", fence)
    plan_bytes = json.dumps(plan, sort_keys=True).encode()
    for other in reversed(building_folders(target)):
        if not folder.exists() and PLAN_FILE.holds(other / PLAN, plan_bytes):
            durable.rename(other, folder)
        else:
            durable.remove(other)
    if folder.exists():
        _sweep(folder, _receipted(folder), keep=(PLAN, RECEIPTS))
    else:
        durable.make_folder(folder)
        durable.write_durably(folder / PLAN, plan_bytes)
    return folder


def _receipted(folder: Path) -> set[str]:
    """Files that receipts name. A receipt that is damaged, or whose files aren't all there as they were written, is
    dropped first: its shard is run again.
    """
    paths = sorted((folder / RECEIPTS).rglob("*.json"))
    named: set[str] = set()
    with ThreadPoolExecutor(_THREADS) as pool:
        for path, files in zip(paths, pool.map(lambda path: _kept_files(folder, path), paths), strict=True):
            if files is None:
                durable.remove(path)
            else:
                named |= files
    return named


def _read_receipt(path: Path) -> Receipt | None:
    try:
        return Receipt.from_bytes(RECEIPT_FILE.bytes_of(path))
    except (FileNotFoundError, InputError):
        return None


def _kept_files(folder: Path, receipt_file: Path) -> set[str] | None:
    receipt = _read_receipt(receipt_file)
    if receipt is None or not all(_is_as_written(folder, file) for file in receipt.files):
        return None
    return {file.path for file in receipt.files}


def _is_as_written(folder: Path, file: OutputFile) -> bool:
    if not lies_inside(file.path):
        return False
    try:
        descriptor = os.open(folder / file.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    with open(descriptor, "rb", buffering=0) as opened:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            return False
        if file.xxh3 is not None:
            return found.st_size == file.bytes and stream_xxh3(opened) == file.xxh3
        if file.start is None:
            return found.st_size == file.bytes and stream_sha256(opened) == file.sha256
        opened.seek(file.start)
        return stream_sha256(opened, file.bytes) == file.sha256


def _sweep(folder: Path, named: set[str], keep: Sequence[str]) -> None:
    """Removes every file that is not named, temporary ones too, and not below one of the kept names."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name not in named and name.split("/")[0] not in keep:
            durable.remove(path)
    for path in sorted((folder / RECEIPTS).rglob(f"*{durable.TEMPORARY_SUFFIX}")):
        durable.remove(path)
