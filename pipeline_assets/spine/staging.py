"""Staging directories, in which artifacts are built before they are sealed.

The staging directory of the target `name` is `.name.building.N` next to the target; N is the builder's fencing number.
The directory contains the files under their final names, `.plan.json` (the plan of the build), `.receipts/` (finished
shards) and `.work/` (files that the seal removes, or keeps as `.name.kept` for the next version).

Steps of a seal → what recovery does if a crash interrupts or follows the step:
    1. manifest.json is durable in the staging directory → continue with 2 if all files match the manifest
    2. .work is kept or removed; .receipts, .plan.json and write permissions are removed → continue with 3
    3. the directory takes the target's name: by rename; by exchanging the two folders if the target exists; or, if
       the system has no exchange, after moving the old folder to `.name.old.N` → finish or undo
    4. the old folder is removed → remove the rest of it
If the manifest of a staging directory has the fencing number N of the directory's name, the directory is the new
artifact. If the manifest has a smaller number, the directory is the old artifact, left by an exchange. The leftover
`.name.old.3` cannot be confused with an artifact `name.old.3`, because no artifact's name begins with a dot.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from pipeline_assets.spine import artifact, durable, folder_exchange
from pipeline_assets.spine.errors import InputError, RetryableError
from pipeline_assets.spine.kept_folder import KEPT_TASKS_FILE, keep_work
from pipeline_assets.spine.lock import Lock
from pipeline_assets.spine.manifest import MANIFEST_FILE, FileContent, Manifest, StoredFile
from pipeline_assets.spine.metadata_file import MetadataFormat
from pipeline_assets.spine.typed_values import convert

PLAN_FILE, RECEIPTS_FOLDER, WORK_FOLDER = ".plan.json", ".receipts", ".work"
WORK_FILES_VERSION = 2  # version of the formats of all work files; raise it if one of them changes
BUILDER_KEY = "builder"  # key of the fencing number in the provenance
PULLED_KEY = "pulled_from"  # key of the store in the provenance of a pulled artifact; a key of the plan of a pull, too
RECEIPT_FORMAT = MetadataFormat("receipt", 256 << 20, "run its recipe again", dict[str, Any])
LeftoverRole = Literal["building", "old"]
_LEFTOVER = re.compile(r"\.(.+)\.(building|old)\.([0-9]+)", re.DOTALL)


@dataclass(frozen=True)
class OutputFile:
    """Finished file of a staging directory, with the hashes of its bytes and content.

    `start` is the offset of this shard's bytes in a file that several shards write; None if one shard writes it.
    """

    path: str
    rows: int
    bytes: int
    sha256: str
    content_sha256: str
    start: int | None = None

    @classmethod
    def uncompressed(cls, path: str, row_count: int, file: durable.DurableFile) -> "OutputFile":
        """Describe an uncompressed file, whose content hash is the hash of its bytes."""
        return cls(path, row_count, file.bytes_written, file.sha256, file.sha256)

    @property
    def content(self) -> FileContent:
        return FileContent(self.path, self.rows, self.content_sha256)

    @property
    def stored(self) -> StoredFile:
        return StoredFile(self.path, self.bytes, self.sha256)

    def link_as(self, path: str, staging: "StagingView") -> "OutputFile":
        """Link the file to a second name; a resumed build must call this again."""
        durable.link(staging.path(self.path), staging.path(path))
        return replace(self, path=path)


@dataclass(frozen=True)
class Receipt:
    """Record of one finished shard.

    `counts` are added up over shards; `notes` are other facts, which cannot be added up. `reads` has, by
    path, the sha256 of each file that was read completely.
    """

    files: Sequence[OutputFile]
    counts: Mapping[str, int]
    notes: Mapping[str, Any] = field(default_factory=dict)
    reads: Mapping[str, str] = field(default_factory=dict)

    def to_bytes(self, receipt_name: str = "") -> bytes:
        """Serialize as two lines: the hex sha256 of name and JSON together, then the JSON.

        `receipt_name` is `STAGE/SHARD.json` for a stored receipt, so that no other shard can use the receipt.
        """
        content = json.dumps({**vars(self), "files": [vars(file) for file in self.files]}, sort_keys=True).encode()
        return hashlib.sha256(receipt_name.encode() + content).hexdigest().encode() + b"\n" + content

    @classmethod
    def from_bytes(cls, data: bytes, receipt_name: str = "") -> "Receipt | None":
        """Parse the output of `to_bytes`; None if damaged or if `receipt_name` differs."""
        sha256, _, content = data.partition(b"\n")
        if hashlib.sha256(receipt_name.encode() + content).hexdigest().encode() != sha256:
            return None
        try:
            return convert(json.loads(content), cls)
        except (ValueError, RecursionError):  # a forged hash
            return None


def read_receipt(path: Path) -> Receipt | None:
    try:
        return Receipt.from_bytes(RECEIPT_FORMAT.read_raw(path), f"{path.parent.name}/{path.name}")
    except (FileNotFoundError, InputError):
        return None


def total_counts(receipts: Iterable[Receipt]) -> dict[str, int]:
    """Add up the counts of receipts, keys sorted."""
    totals = Counter[str]()
    for receipt in receipts:
        totals.update(receipt.counts)
    return dict(sorted(totals.items()))


def missing_folder_error(folder: Path) -> RetryableError:
    what = "the staging directory was deleted or renamed during the build"
    return RetryableError(what, folder, "nothing was sealed; run the same command again")


@dataclass(frozen=True)
class StagingView:
    """Paths and receipts of a staging directory, for workers, which have no lock."""

    folder: Path

    def path(self, name: str) -> Path:
        """Return the path of a file to write, and create its folder.

        Raise RetryableError if the staging directory was deleted, or renamed by another builder that took over.
        """
        path = self.folder / name
        if not path.parent.is_dir():
            if not self.folder.is_dir():
                raise missing_folder_error(self.folder)
            durable.make_folder(path.parent)
        return path

    def write(self, name: str, data: bytes | memoryview, rows: int = 1) -> OutputFile:
        """Write a file with this data, and return its description."""
        with durable.DurableFile(self.path(name)) as file:
            file.write(data)
        return OutputFile.uncompressed(name, rows, file)

    def commit(self, stage: str, shard: str, receipt: Receipt) -> None:
        """Mark a shard as finished by writing its receipt durably."""
        with durable.DurableFile(self.path(self._receipt_name(stage, shard))) as file:
            file.write(receipt.to_bytes(f"{stage}/{shard}.json"))

    def read_receipt(self, stage: str, shard: str) -> Receipt | None:
        """Read a shard's receipt; None if it is damaged or the shard is unfinished."""
        return read_receipt(self.folder / self._receipt_name(stage, shard))

    def remove_receipt(self, stage: str, shard: str) -> None:
        durable.remove(self.folder / self._receipt_name(stage, shard))

    def count_finished_shards(self, stage: str = "*") -> int:
        """Count the shards of a stage (`*` for all stages) that have a receipt.

        Stages with a dot in their names are not counted, since their receipts record remote calls, not shards.
        """
        paths = (self.folder / RECEIPTS_FOLDER).glob(f"{stage}/*.json")
        return sum("." not in path.parent.name for path in paths)

    def _receipt_name(self, stage: str, shard: str) -> str:
        return f"{RECEIPTS_FOLDER}/{stage}/{shard}.json"


@dataclass(frozen=True)
class StagingDir(StagingView):
    """Open staging directory with its lock, for the artifact folder `target`.

    `has_partial_work` is True if the staging directory of an interrupted or failed build was found.
    """

    target: Path
    lock: Lock
    has_partial_work: bool = False

    def seal(self, manifest: Manifest) -> artifact.Artifact:
        """Seal the artifact and move it into place; drop files not in `manifest.storage`.

        Raise RetryableError if the lock was lost, or if a file is missing or its size differs.
        """
        self.lock.raise_if_lost()
        for file in manifest.storage:
            if artifact.size_error(self.folder, file) is not None:
                what = f"the file is missing, or no longer has the {file.bytes:,} bytes that were written"
                raise RetryableError(what, self.folder / file.path, "run the command again")
        names = {file.path for file in manifest.storage}
        remove_unnamed(self.folder, names, kept_entries=(PLAN_FILE, RECEIPTS_FOLDER, WORK_FOLDER))
        for folder in sorted({(self.folder / name).parent for name in names}):
            durable.fsync_folder(folder)
        self.lock.raise_if_lost()
        sealed = replace(manifest, provenance={**manifest.provenance, BUILDER_KEY: self.lock.fence})
        durable.write_durably(self.folder / MANIFEST_FILE, sealed.to_bytes())
        finish_seal(self.folder, self.target, self.lock.fence)
        return artifact.open_artifact(self.target, manifest.digest)

    def discard(self) -> None:
        """Remove the staging directory without sealing it."""
        durable.remove(self.folder)

    def discard_if_unstarted(self) -> None:
        """Remove the staging directory if it has no finished shard to continue from."""
        if not any((self.folder / RECEIPTS_FOLDER).rglob("*.json")):
            self.discard()


def remove_unnamed(folder: Path, named_files: set[str], kept_entries: Sequence[str]) -> None:
    """Remove temporary receipts and all files but `named_files` and `kept_entries`."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name not in named_files and name.split("/")[0] not in kept_entries:
            durable.remove(path)
    for path in [*(folder / RECEIPTS_FOLDER).rglob(".*.tmp")]:
        durable.remove(path)


def staging_folders(target: Path) -> list[Path]:
    """List the staging directories of a target, oldest first."""
    return leftover_folders(target, "building")


def sibling_path(target: Path, role: LeftoverRole, fence: int) -> Path:
    """Return `.NAME.ROLE.NUMBER` next to the target; `fence` is a fencing number."""
    return target.with_name(f".{target.name}.{role}.{fence}")


def leftover_target(folder: Path) -> Path | None:
    """Return the artifact folder of a leftover; None for any other folder."""
    match = _LEFTOVER.fullmatch(folder.name)
    return folder.with_name(match[1]) if match else None


def leftover_folders(target: Path, role: LeftoverRole) -> list[Path]:
    """List the folders `.name.<role>.<number>` of a target, sorted by number."""
    paths = [path for path in list_leftovers(target) if path.name.startswith(f".{target.name}.{role}.")]
    return sorted((path for path in paths if path.is_dir() and not path.is_symlink()), key=fencing_number)


def list_leftovers(target: Path) -> list[Path]:
    """List a target's leftovers: entries next to it with names as in `sibling_path`."""
    if not target.parent.is_dir():
        return []
    return [path for path in target.parent.iterdir() if leftover_target(path) == target]


def fencing_number(folder: Path) -> int:
    return int(folder.name.rpartition(".")[2])


def make_read_only(folder: Path, paths: Iterable[Path]) -> None:
    """Make sealed files readable for all and writable for none, whatever the umask.

    Only the owner, and a group that shares the parent folder, can add or remove files in the artifact's folders.
    """
    group_bits = 0o020 if durable.is_shared(folder.parent) else 0
    for path in (folder, *paths):
        durable.set_mode(path, 0o755 | group_bits if path.is_dir() else 0o444)


def finish_seal(folder: Path, target: Path, fence: int) -> None:
    """Run steps 2 to 4 of the seal: keep or remove work files, make read-only, rename."""
    if (folder / WORK_FOLDER / KEPT_TASKS_FILE).exists():
        keep_work(folder / WORK_FOLDER, target)
    for name in (RECEIPTS_FOLDER, WORK_FOLDER, PLAN_FILE):
        durable.remove(folder / name, aside=target)
    for parent in (folder, *filter(Path.is_dir, folder.rglob("*"))):
        durable.remove_abandoned(parent)  # copies that a killed `take_over` left
    make_read_only(folder, sorted(folder.rglob("*")))
    durable.fsync_folder(folder)
    if not target.exists():
        durable.rename(folder, target)
    elif folder_exchange.exchange(folder, target):
        durable.remove(folder)
    else:
        old = sibling_path(target, "old", fence)
        durable.rename(target, old)
        durable.rename(folder, target)
        durable.remove(old)
