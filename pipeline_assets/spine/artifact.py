"""Sealed artifacts: a folder whose last-written file is `manifest.json`. Opened, listed and verified here, with the
record of what checks say of one.

The record is `.NAME.checks.json` beside the artifact's folder NAME, a name that no artifact can have. It is of one
digest: of another content that lies there by now it says nothing. A record that can't be read, or that is none of ours,
counts as none: then the checks are asked again.
"""

import functools
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from pipeline_assets.spine import durable, files
from pipeline_assets.spine.errors import InputError, RetryableError, UsageError
from pipeline_assets.spine.manifest import (
    FILE_NAME,
    MANIFEST_FILE,
    LabelsOf,
    Manifest,
    StoredFile,
    is_seal_intact,
)

_BROKEN_SEAL = "it isn't the bytes that were sealed, though its identity is"
_STREAMED = ".zst"  # can be read from its beginning only, and what reads it hashes it
# A run asks for the manifests of its few artifacts ten times each: what they say depends on their bytes alone.
_CACHED_MANIFEST_BYTES = 1 << 16
_parsed = functools.lru_cache(maxsize=128)(Manifest.from_bytes)


@dataclass(frozen=True)
class Artifact:
    """A sealed folder, its manifest read and the sizes of its files checked."""

    folder: Path
    manifest: Manifest

    def path(self, name: str) -> Path:
        """The file `name` of the manifest's storage. A build that asks for it reads it, so it is held against its hash.
        Raises InputError: the manifest names no such file; a build asks, and the file is not as it was sealed.
        """
        stored = next((file for file in self.manifest.storage if file.path == name), None)
        if stored is None:
            known = ", ".join(file.path for file in self.manifest.storage[:5]) or "no files"
            raise InputError(f"holds no file {name!r}", self.folder, f"it holds {known}")
        promise = files.ExpectedHash(stored.sha256, "sealed with", repair_command(self.folder))
        files.expect_hash(self.folder / name, promise, is_streamed=name.endswith(_STREAMED))
        return self.folder / name

    def members(self) -> list[Manifest]:
        """Manifests of the artifacts inside this one's folder that are its content."""
        found = (read_manifest(self.folder / name) for name in member_digests(self.manifest))
        return [manifest for manifest in found if manifest is not None]


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of a sealed folder; None where nothing is sealed. Raises InputError: there is one, but it is no
    manifest or was edited.
    """
    path = folder / FILE_NAME
    try:
        data = MANIFEST_FILE.read_raw(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return (_parsed if len(data) <= _CACHED_MANIFEST_BYTES else Manifest.from_bytes)(data, path)


def try_read_manifest(folder: Path) -> Manifest | None:
    """The manifest of a sealed folder; None where nothing that can be read is sealed."""
    try:
        return read_manifest(folder)
    except InputError:
        return None


def copy_manifest(artifact: Artifact, copy: Path) -> None:
    """Writes an artifact's manifest under another name, to the byte, where it isn't there yet."""
    data = MANIFEST_FILE.read_raw(artifact.folder / FILE_NAME)
    if not copy.exists() or copy.read_bytes() != data:
        durable.make_folder(copy.parent)
        durable.write_durably(copy, data)


def open_artifact(folder: Path, digest: str | None = None) -> Artifact:
    """A sealed artifact, ready to read; of this digest, if the caller expects one: the folder may have been replaced
    since it looked. Raises InputError: nothing sealed there, another digest, or a file missing, of another size or no
    plain file; RetryableError: it was replaced while its sizes were looked at.
    """
    with files.forbid_replacement(folder):
        manifest = read_manifest(folder)
        if manifest is None:
            what = "nothing is sealed here (no manifest.json)"
            raise InputError(what, folder, "build it, or wait for its build to end")
        if digest is not None and manifest.digest != digest:
            what = f"digest is {manifest.digest}, expected {digest}"
            raise RetryableError(what, folder, "it was replaced: run again")
        damage = next((item for item in _named_files(folder, manifest, None) if isinstance(item, Damage)), None)
        if damage is not None:
            raise InputError(damage.what, folder / damage.path, files.REBUILD)
        return Artifact(folder, manifest)


@dataclass(frozen=True)
class Damage:
    """One thing about a folder that its manifest contradicts."""

    path: str
    what: str


def require_manifest(folder: Path) -> Manifest:
    """The manifest of a folder that should be an artifact. Raises UsageError: nothing is sealed there; InputError: the
    manifest itself was edited.
    """
    if not folder.is_dir():
        what = "this is a file" if folder.exists() else "there is no such folder"
        raise UsageError(what, folder, "give the folder of a finished artifact")
    manifest = read_manifest(folder)
    if manifest is None:
        raise UsageError("nothing is sealed here (no manifest.json)", folder, "give the folder of a finished artifact")
    return manifest


def verify(folder: Path, labels_of: LabelsOf = lambda kind: ()) -> Iterator[StoredFile | Damage]:
    """Reads every file again: yields it when it is as sealed, else what is wrong with it.

    Files that the manifest doesn't name are damage too, and those that it names though they are neither content nor
    labels of the kind. A folder that is an artifact inside this one is verified with it. Raises InputError: nothing is
    sealed there, or the manifest itself was edited.
    """
    manifest = require_manifest(folder)
    for item in scan_folder(folder, manifest, labels_of):
        complaint = _hash_error(folder, item) if isinstance(item, StoredFile) else None
        yield Damage(item.path, complaint) if complaint else item
    for member, digest in member_digests(manifest).items():
        found = read_member(folder, member, digest)
        if isinstance(found, Damage):
            yield found
            continue
        for item in verify(folder / member, labels_of):
            yield replace(item, path=f"{member}/{item.path}")


def scan_folder(folder: Path, manifest: Manifest, labels_of: LabelsOf) -> Iterator[StoredFile | Damage]:
    """What a look at a sealed folder tells, no file read but the manifest: its files, where they have their sizes, and
    what is wrong otherwise. Members are left out.

    A sealed folder holds plain files and folders: a link, even to the right bytes, is damage, since what it leads to is
    nobody's to keep.
    """
    yield from _named_files(folder, manifest, labels_of)
    named = {file.path for file in manifest.storage} | {FILE_NAME}
    members = member_digests(manifest)
    for path in sorted(folder.rglob("*")):
        name, mode = path.relative_to(folder).as_posix(), path.lstat().st_mode
        top = name.split("/")[0]
        is_members = any(top == member or top.startswith(f".{member}.") for member in members)  # or lies beside one
        if name in named or stat.S_ISDIR(mode) or is_members:
            continue
        yield Damage(name, "the manifest doesn't name this file" if stat.S_ISREG(mode) else _file_type_error(mode))


def _named_files(folder: Path, manifest: Manifest, labels_of: LabelsOf | None) -> Iterator[StoredFile | Damage]:
    if not is_seal_intact(MANIFEST_FILE.read_raw(folder / FILE_NAME)):
        yield Damage(FILE_NAME, _BROKEN_SEAL)
    yield from (Damage(FILE_NAME, what) for what in manifest.storage_errors(labels_of))
    for file in manifest.storage:
        complaint = size_error(folder, file)
        yield Damage(file.path, complaint) if complaint else file


def find_damage(folder: Path, manifest: Manifest) -> Iterator[Damage]:
    """Damage of the files that a manifest names; every byte of them is read."""
    yield from (Damage(FILE_NAME, what) for what in manifest.storage_errors())
    for file in manifest.storage:
        if complaint := size_error(folder, file) or _hash_error(folder, file):
            yield Damage(file.path, complaint)


def repair_command(folder: Path) -> str:
    """What to do about an artifact whose file is not as it was sealed."""
    return f"remove {folder}, and run its recipe again"


def member_digests(manifest: Manifest) -> dict[str, str]:
    """Digests of the artifacts inside this one's folder that are its content, by the name of their folders."""
    return {str(entry["member"]): entry["digest"] for entry in manifest.identity.inputs if "member" in entry}


def read_member(folder: Path, member: str, digest: str) -> Manifest | Damage:
    """The manifest of a member; damage where another artifact is in its place, or none."""
    try:
        found = read_manifest(folder / member)
    except InputError as error:
        return Damage(f"{member}/{FILE_NAME}", error.what)
    if found is None or found.digest != digest:
        return Damage(member, f"digest is {found.digest if found else 'missing'}, sealed with {digest}")
    return found


def size_error(folder: Path, file: StoredFile) -> str | None:
    """Why a file is not there as it was stored, as far as its name and size tell; None where it is."""
    try:
        found = os.lstat(folder / file.path)
    except (FileNotFoundError, NotADirectoryError):
        return "the file is missing"
    except OSError as error:
        return files.read_error_text(error)
    if not stat.S_ISREG(found.st_mode):
        return _file_type_error(found.st_mode)
    return None if found.st_size == file.bytes else f"has {found.st_size:,} bytes, sealed with {file.bytes:,}"


def _file_type_error(mode: int) -> str:
    what = "a link" if stat.S_ISLNK(mode) else "a folder" if stat.S_ISDIR(mode) else "a device, pipe or socket"
    return f"this is {what}, where only plain files were sealed"


def _hash_error(folder: Path, file: StoredFile) -> str | None:
    try:
        actual = files.file_sha256(folder / file.path)
    except OSError as error:
        return files.read_error_text(error)
    return None if actual == file.sha256 else f"sha256 is {actual}, sealed with {file.sha256}"


@dataclass(frozen=True)
class Verdict:
    """Whether something holds, in words, and the numbers behind it. It doesn't apply where the question is none; a
    failure that is slight is a warning at most, even of a blocking check.
    """

    holds: bool
    because: str
    numbers: Mapping[str, int | float | str] = field(default_factory=dict)
    applies: bool = True
    is_minor: bool = False


SCHEMA = "corpusmill/checks/1"


class CheckResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one check said, and the numbers behind it. One that is `blocking` holds back an artifact that fails it; else
    a failure is a warning. It doesn't apply where the question is none.
    """

    name: str
    passed: bool
    blocking: bool
    because: str
    numbers: dict[str, int | float | str] = {}
    applies: bool = True

    @classmethod
    def from_verdict(cls, name: str, is_blocking: bool, verdict: Verdict) -> "CheckResult":
        """The result of a check that came to a verdict."""
        is_blocking, numbers = is_blocking and not verdict.is_minor, dict(verdict.numbers)
        return cls(name, verdict.holds, is_blocking, verdict.because, numbers, verdict.applies)

    @property
    def is_blocking_failure(self) -> bool:
        return self.blocking and not self.passed

    @property
    def word(self) -> str:
        """Passed, or how bad it is."""
        return "passed" if self.passed else "FAILED" if self.blocking else "WARNING"


class _Record(msgspec.Struct, frozen=True):
    schema: str
    digest: str
    results: tuple[CheckResult, ...]


_FILE = files.MetadataFile("record of checks", 1 << 20, "delete it: the checks are asked again", _Record)


def write_check_results(folder: Path, digest: str, results: Sequence[CheckResult]) -> None:
    """Writes what all checks said of the artifact that is sealed in a folder, in place of what they said before."""
    record = msgspec.json.encode(_Record(SCHEMA, digest, tuple(results)))
    durable.write_durably(check_record_path(folder), msgspec.json.format(record, indent=1) + b"\n")


def read_check_results(folder: Path, digest: str) -> tuple[CheckResult, ...] | None:
    """What checks said of the artifact with this digest; None where they were not asked."""
    try:
        record = _FILE.read(check_record_path(folder))
    except (FileNotFoundError, InputError):
        return None
    return record.results if (record.schema, record.digest) == (SCHEMA, digest) else None


def check_record_path(folder: Path) -> Path:
    """Where what checks said of the artifact in a folder is kept."""
    return folder.with_name(f".{folder.name}.checks.json")
