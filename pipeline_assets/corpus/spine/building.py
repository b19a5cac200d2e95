"""A building folder: shards with receipts, adopted after a crash, sealed last; `sealing` has its layout."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline_assets.corpus.spine import durable
from pipeline_assets.corpus.spine.artifact import Artifact, open_artifact
from pipeline_assets.corpus.spine.errors import Obstacle
from pipeline_assets.corpus.spine.lock import Lock, locked
from pipeline_assets.corpus.spine.manifest import FILE_NAME, FileContent, Identity, Manifest, StoredFile
from pipeline_assets.corpus.spine.sealing import (
    BUILDER,
    PLAN,
    RECEIPTS,
    WORK,
    building_folders,
    finish,
    highest_number,
    leftover,
    protect,
    recover_locked,
)


@dataclass(frozen=True)
class OutputFile:
    """A finished file of a building folder: how it is stored and what it says."""

    path: str
    rows: int
    bytes: int
    sha256: str
    content_sha256: str

    @classmethod
    def plain(cls, path: str, rows: int, file: durable.DurableFile) -> "OutputFile":
        """A file that says what it holds as it is stored: nothing is compressed."""
        return cls(path, rows, file.bytes_written, file.sha256, file.sha256)

    @property
    def content(self) -> FileContent:
        return FileContent(self.path, self.rows, self.content_sha256)

    @property
    def stored(self) -> StoredFile:
        return StoredFile(self.path, self.bytes, self.sha256)


@dataclass(frozen=True)
class Receipt:
    """What one finished shard left: its files, what it counted, what it has to say. `counts` add up, `notes` don't."""

    files: Sequence[OutputFile]
    counts: Mapping[str, int]
    notes: Mapping[str, Any] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        value = {**vars(self), "files": [vars(file) for file in self.files]}
        return json.dumps(value, sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Receipt":
        value = json.loads(data)
        return cls(**{**value, "files": [OutputFile(**file) for file in value["files"]]})


def total_counts(receipts: Iterable[Receipt]) -> dict[str, int]:
    """Counts of many receipts added up, keys sorted."""
    totals: dict[str, int] = {}
    for receipt in receipts:
        for name, count in receipt.counts.items():
            totals[name] = totals.get(name, 0) + count
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
                raise Obstacle(what, self.folder, "another builder took over; nothing was sealed")
            durable.make_folder(path.parent)
        return path

    def commit(self, stage: str, shard: str, receipt: Receipt) -> None:
        """From now on this shard of this stage is done, whatever happens."""
        durable.write_durably(self.path(self._receipt_name(stage, shard)), receipt.to_bytes())

    def receipt(self, stage: str, shard: str) -> Receipt | None:
        """The receipt of a finished shard; None if it is not finished."""
        try:
            return Receipt.from_bytes((self.folder / self._receipt_name(stage, shard)).read_bytes())
        except FileNotFoundError:
            return None

    def finished_shards(self, stage: str) -> int:
        """How many shards of a stage have a receipt."""
        return len(list((self.folder / RECEIPTS / stage).glob("*.json")))

    def _receipt_name(self, stage: str, shard: str) -> str:
        return f"{RECEIPTS}/{stage}/{shard}.json"


@dataclass(frozen=True)
class Building(BuildFolder):
    """An open building folder and the lock on it."""

    target: Path
    lock: Lock

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
            if not _has_size(self.folder / file.path, file.bytes):
                what = f"the file is gone, or no longer has the {file.bytes:,} bytes that were written"
                raise Obstacle(what, self.folder / file.path, "run the command again")
        _sweep(self.folder, {file.path for file in stored}, keep=(PLAN, RECEIPTS, WORK))
        for folder in sorted({(self.folder / file.path).parent for file in stored}):
            durable.fsync_folder(folder)
        self.lock.check()
        durable.write_durably(self.folder / FILE_NAME, manifest.to_bytes())
        finish(self.folder, self.target, self.lock.fence)
        return open_artifact(self.target, manifest.digest)

    def discard(self) -> None:
        """The building folder is gone: another builder has sealed the artifact."""
        durable.remove(self.folder)

    def discard_unstarted(self) -> None:
        """The building folder is gone if no shard of it is finished: nobody could go on from it."""
        if not any((self.folder / RECEIPTS).rglob("*.json")):
            self.discard()


@contextmanager
def open_building(target: Path, plan: Mapping[str, Any]) -> Iterator[Building]:
    """The building folder for `target`, alone: recovered after a crash, with the shards of an equal plan adopted.

    Args:
        plan: what is being built; a folder with another plan is thrown away.
    Raises:
        InputError: another process builds the same target, or something that was never sealed lies there.
    """
    with locked(target, highest_number(target)) as lock:
        recover_locked(target)
        folder = _adopt(target, plan, lock.fence)
        yield Building(folder, target, lock)


def seal_in_place(target: Path, kind: str, name: str, identity: Identity, provenance: Mapping[str, Any]) -> Artifact:
    """An artifact whose content is its members, folders that lie in `target`, or files from elsewhere: its manifest is
    all that is written.
    """
    durable.make_folder(target)
    with locked(target, highest_number(target)) as lock:
        manifest = Manifest(kind, name, identity, [], {**provenance, BUILDER: lock.fence})
        durable.write_durably(target / FILE_NAME, manifest.to_bytes())
        protect(target, [target / FILE_NAME])
    return open_artifact(target, manifest.digest)


def _adopt(target: Path, plan: Mapping[str, Any], fence: int) -> Path:
    """The newest building folder of an equal plan under this builder's number, swept; else an empty one.

    The rename is what fences off an earlier builder that still runs: its paths are gone.
    """
    folder = leftover(target, "building", fence)
    plan_bytes = json.dumps(plan, sort_keys=True).encode()
    for other in reversed(building_folders(target)):
        if not folder.exists() and (other / PLAN).read_bytes() == plan_bytes:
            durable.rename(other, folder)
        else:
            durable.remove(other)
    if folder.exists():
        _sweep(folder, set(_receipted(folder)), keep=(PLAN, RECEIPTS))
    else:
        durable.make_folder(folder)
        durable.write_durably(folder / PLAN, plan_bytes)
    return folder


def _receipted(folder: Path) -> Iterator[str]:
    """Files that receipts name. A receipt whose files aren't all there with their sizes is dropped first."""
    for path in sorted((folder / RECEIPTS).rglob("*.json")):
        receipt = Receipt.from_bytes(path.read_bytes())
        if all(_has_size(folder / file.path, file.bytes) for file in receipt.files):
            yield from (file.path for file in receipt.files)
        else:
            durable.remove(path)


def _has_size(path: Path, size: int) -> bool:
    return path.is_file() and path.stat().st_size == size


def _sweep(folder: Path, named: set[str], keep: Sequence[str]) -> None:
    """Removes every file that is not named, temporary ones too, and not below one of the kept names."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name not in named and name.split("/")[0] not in keep:
            durable.remove(path)
    for path in sorted((folder / RECEIPTS).rglob(f"*{durable.TEMPORARY_SUFFIX}")):
        durable.remove(path)
