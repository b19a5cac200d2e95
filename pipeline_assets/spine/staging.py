"""A building folder of shards with receipts, which is sealed last.

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

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import msgspec

from pipeline_assets.spine import artifact, durable
from pipeline_assets.spine.errors import InputError, RetryableError
from pipeline_assets.spine.files import MetadataFile
from pipeline_assets.spine.lock import Lock
from pipeline_assets.spine.manifest import FILE_NAME, FileContent, Identity, Manifest, StoredFile

PLAN, RECEIPTS, WORK = ".plan.json", ".receipts", ".work"
BUILDER = "builder"
RECEIPT_FILE: MetadataFile[dict[str, Any]] = MetadataFile("receipt", 256 << 20, "run its recipe again", dict[str, Any])
Role = Literal["building", "old"]
_LEFTOVER = re.compile(r"\.(.+)\.(building|old)\.([0-9]+)", re.DOTALL)


@dataclass(frozen=True)
class OutputFile:
    """A finished file of a building folder: how it is stored and what it says.

    Attributes:
        start: where the bytes begin in a file that other shards write too; None where the file is this shard's own.
    """

    path: str
    rows: int
    bytes: int
    sha256: str
    content_sha256: str
    start: int | None = None

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

    def linked(self, path: str, folder: "StagingView") -> "OutputFile":
        """The file under a second name in its folder: done in no time, so no worker does it and no receipt keeps it."""
        durable.link(folder.path(self.path), folder.path(path))
        return replace(self, path=path)


@dataclass(frozen=True)
class Receipt:
    """What one finished shard left: its files, what it counted, what it has to say, and the sha256 of each file that it
    read from its beginning to its end, by path. `counts` add up, `notes` don't.
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
        return msgspec.convert(json.loads(said), cls)


def read_receipt(path: Path) -> Receipt | None:
    try:
        return Receipt.from_bytes(RECEIPT_FILE.read_raw(path))
    except (FileNotFoundError, InputError):
        return None


def total_counts(receipts: Iterable[Receipt]) -> dict[str, int]:
    """Counts of many receipts added up, keys sorted."""
    totals = Counter[str]()
    for receipt in receipts:
        totals.update(receipt.counts)
    return dict(sorted(totals.items()))


@dataclass(frozen=True)
class StagingView:
    """The part of a building folder that workers see: where files go and where receipts are written."""

    folder: Path

    def path(self, name: str) -> Path:
        """Where to write the file `name`; its folder is made. Raises InputError: another builder took the building
        folder over, which then has another name.
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
        with durable.DurableFile(self.path(self._receipt_name(stage, shard))) as file:
            file.write(receipt.to_bytes())

    def receipt(self, stage: str, shard: str) -> Receipt | None:
        """The receipt of a finished shard; None if it is not finished, or its receipt is damaged."""
        return read_receipt(self.folder / self._receipt_name(stage, shard))

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
class StagingDir(StagingView):
    """An open building folder and the lock on it; `has_partial_work` by a build that died or failed."""

    target: Path
    lock: Lock
    has_partial_work: bool = False

    def seal(
        self, kind: str, name: str, identity: Identity, stored: Sequence[StoredFile], provenance: Mapping[str, Any]
    ) -> artifact.Artifact:
        """The finished artifact, in its place. Raises InputError: the lock was lost, or a file is not there with its
        size.
        """
        self.lock.check()
        manifest = Manifest(kind, name, identity, list(stored), {**provenance, BUILDER: self.lock.fence})
        for file in stored:
            if artifact.size_error(self.folder, file) is not None:
                what = f"the file is gone, or no longer has the {file.bytes:,} bytes that were written"
                raise RetryableError(what, self.folder / file.path, "run the command again")
        sweep(self.folder, {file.path for file in stored}, keep=(PLAN, RECEIPTS, WORK))
        for folder in sorted({(self.folder / file.path).parent for file in stored}):
            durable.fsync_folder(folder)
        self.lock.check()
        durable.write_durably(self.folder / FILE_NAME, manifest.to_bytes())
        finish_seal(self.folder, self.target, self.lock.fence)
        return artifact.open_artifact(self.target, manifest.digest)

    def discard(self) -> None:
        """The building folder is gone: another builder has sealed the artifact."""
        durable.remove(self.folder)

    def discard_unstarted(self) -> None:
        """The building folder is gone if no shard of it is finished: nobody could go on from it."""
        if not any((self.folder / RECEIPTS).rglob("*.json")):
            self.discard()


def sweep(folder: Path, named: set[str], keep: Sequence[str]) -> None:
    """Removes every file that is not named, temporary ones too, and not below one of the kept names."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name not in named and name.split("/")[0] not in keep:
            durable.remove(path)
    for path in sorted((folder / RECEIPTS).rglob(".*.tmp")):
        durable.remove(path)


def staging_folders(target: Path) -> list[Path]:
    """Building folders beside a target, oldest first; without a live builder they wait to be adopted."""
    return numbered(target, "building")


def leftover_path(target: Path, role: Role, number: int) -> Path:
    """The folder that the builder with a number builds a target in, or moves the old one to."""
    return target.with_name(f".{target.name}.{role}.{number}")


def leftover_target(folder: Path) -> Path | None:
    """The artifact that a folder of such a name is left of; None for any other name."""
    match = _LEFTOVER.fullmatch(folder.name)
    return folder.with_name(match[1]) if match else None


def numbered(target: Path, role: Role) -> list[Path]:
    """Folders `.name.<role>.<number>` beside a target, by number."""
    found = [path for path in sibling_folder(target) if path.name.startswith(f".{target.name}.{role}.")]
    return sorted((path for path in found if path.is_dir() and not path.is_symlink()), key=staging_number)


def sibling_folder(target: Path) -> list[Path]:
    """Whatever has the name of a folder that is left of a target."""
    if not target.parent.is_dir():
        return []
    return [path for path in target.parent.iterdir() if leftover_target(path) == target]


def staging_number(folder: Path) -> int:
    return int(folder.name.rpartition(".")[2])


def protect(folder: Path, paths: Iterable[Path]) -> None:
    """Make sealed files readable for all and writable for none, whatever the umask.

    Only the owner may add files to its folders or remove them. A group that shares the parent folder may too, so that
    it can replace the artifact.
    """
    of_group = 0o020 if durable.is_shared(folder.parent) else 0
    for path in (folder, *paths):
        durable.set_mode(path, 0o755 | of_group if path.is_dir() else 0o444)


def finish_seal(folder: Path, target: Path, fence: int) -> None:
    """Remove work files, protect the folder and move it to its target: steps 2 to 4."""
    for name in (RECEIPTS, WORK, PLAN):
        durable.remove(folder / name)
    protect(folder, sorted(folder.rglob("*")))
    durable.fsync_folder(folder)
    if not target.exists():
        durable.rename(folder, target)
    elif durable.exchange(folder, target):
        durable.remove(folder)
    else:
        old = leftover_path(target, "old", fence)
        durable.rename(target, old)
        durable.rename(folder, target)
        durable.remove(old)
