"""Sealed artifacts: folders whose last-written file is `manifest.json`.

Check results and the checked digest are in the file `.NAME.checks.json`, next to the artifact's folder NAME. If the
artifact now has another digest, or the results cannot be read, the checks run again.
"""

import functools
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from pipeline_assets.spine import durable
from pipeline_assets.spine.damage import damaged_file_error
from pipeline_assets.spine.disk_errors import read_error_text
from pipeline_assets.spine.errors import InputError, RetryableError
from pipeline_assets.spine.files import file_sha256
from pipeline_assets.spine.manifest import (
    MANIFEST_FILE,
    MANIFEST_FORMAT,
    LabelNames,
    Manifest,
    StoredFile,
    is_seal_intact,
)
from pipeline_assets.spine.metadata_file import REBUILD, MetadataFormat
from pipeline_assets.spine.replacement import forbid_replacement
from pipeline_assets.spine.verified_reads import ExpectedHash, expect_hash

_BROKEN_SEAL = "bytes differ from the sealed ones, though the identity is equal"
_STREAMED_SUFFIX = ".zst"  # compressed streams are read from the beginning, by readers that hash them
# A run reads each of its few manifests ten times. The parsed value depends only on the bytes, and takes five times
# their memory. So 128 small manifests are cached, but of large ones, such as those of 50,000 source files, only the
# last. Still larger ones are parsed each time.
_MAX_SMALL_BYTES, _MAX_LARGE_BYTES = 1 << 16, 1 << 24
_parse_small = functools.lru_cache(maxsize=128)(Manifest.from_bytes)
_parse_large = functools.lru_cache(maxsize=1)(Manifest.from_bytes)


@dataclass(frozen=True)
class Artifact:
    """Sealed folder with its manifest."""

    folder: Path
    manifest: Manifest

    def path(self, name: str) -> Path:
        """Return the path of a file that the manifest lists; InputError if unlisted.

        In a `verify_reads` block, a wrong hash raises ChangedFileError, in this call or when the file is read.
        """
        stored = next((file for file in self.manifest.storage if file.path == name), None)
        if stored is None:
            known = ", ".join(file.path for file in self.manifest.storage[:5]) or "no files"
            raise InputError(f"no file {name!r} in the manifest", self.folder, f"its files are {known}")
        expected = ExpectedHash(stored.sha256, "sealed with", repair_hint(self.folder))
        expect_hash(self.folder / name, expected, is_streamed=name.endswith(_STREAMED_SUFFIX))
        return self.folder / name

    def members(self) -> list[Manifest]:
        """Read the manifests of sealed members, the artifacts inside this folder."""
        manifests = (read_manifest(self.folder / name) for name in member_digests(self.manifest))
        return [manifest for manifest in manifests if manifest is not None]


def read_manifest(folder: Path) -> Manifest | None:
    """Read the manifest of a sealed folder; None if missing, InputError if damaged."""
    path = folder / MANIFEST_FILE
    try:
        data = MANIFEST_FORMAT.read_raw(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if len(data) > _MAX_LARGE_BYTES:
        return Manifest.from_bytes(data, path)
    return (_parse_small if len(data) <= _MAX_SMALL_BYTES else _parse_large)(data, path)


def try_read_manifest(folder: Path) -> Manifest | None:
    """Read the manifest of a sealed folder; None if missing, damaged or unreadable."""
    try:
        return read_manifest(folder)
    except InputError:
        return None


def copy_manifest(artifact: Artifact, destination: Path) -> None:
    """Copy an artifact's manifest, unless `destination` already has the same bytes.

    Raise InputError if the manifest file is damaged, or RetryableError if the folder now has another artifact.
    """
    path = artifact.folder / MANIFEST_FILE
    data = MANIFEST_FORMAT.read_raw(path)
    if not is_seal_intact(data):
        raise damaged_file_error(_BROKEN_SEAL, path)
    if Manifest.from_bytes(data, path).digest != artifact.manifest.digest:
        what = f"the file is not the manifest that was opened, of {artifact.manifest.digest}"
        raise RetryableError(what, path, "run the same command again")
    if not destination.exists() or destination.read_bytes() != data:
        durable.make_folder(destination.parent)
        durable.write_durably(destination, data)


def open_artifact(folder: Path, digest: str | None = None) -> Artifact:
    """Open a sealed artifact after checking the sizes of its files.

    `digest` is the digest that the artifact must have; None accepts any artifact in the folder. Raise InputError if the
    manifest or a file is missing or damaged, and RetryableError if the digest differs or the folder was replaced during
    the check.
    """
    with forbid_replacement(folder):
        manifest = read_manifest(folder)
        if manifest is None:
            what = "nothing is sealed here (no manifest.json)"
            raise InputError(what, folder, "build it, or wait for its build to end")
        if digest is not None and manifest.digest != digest:
            what = f"digest is {manifest.digest}, expected {digest}"
            raise RetryableError(what, folder, "the artifact was replaced; run the same command again")
        damage = next((item for item in _scan_sizes(folder, manifest, None) if isinstance(item, Damage)), None)
        if damage is not None:
            raise InputError(damage.what, folder / damage.path, REBUILD)
        return Artifact(folder, manifest)


@dataclass(frozen=True)
class Damage:
    """Damage of an artifact: path of the file or member, and the problem as text."""

    path: str
    what: str


def verify(artifact: Artifact, label_names: LabelNames = lambda kind: ()) -> Iterator[StoredFile | Damage]:
    """Read every file of an artifact and its members; yield each file or its damage.

    Paths are relative to the artifact's folder. Damage includes missing and replaced members, files that the manifest
    does not name, and files that are neither covered by the digest nor in `label_names(kind)`.
    """
    folder = artifact.folder
    for item in scan_folder(folder, artifact.manifest, label_names):
        problem = hash_error(folder, item) if isinstance(item, StoredFile) else None
        yield Damage(item.path, problem) if problem else item
    for member, digest in member_digests(artifact.manifest).items():
        result = read_member(folder, member, digest)
        if isinstance(result, Damage):
            yield result
            continue
        for item in verify(Artifact(folder / member, result), label_names):
            yield replace(item, path=f"{member}/{item.path}")


def scan_folder(folder: Path, manifest: Manifest, label_names: LabelNames) -> Iterator[StoredFile | Damage]:
    """Check names, types and sizes of an artifact's files; yield files and damage.

    Only the manifest is read, to check its seal; members are skipped. A link counts as damage, even if its target has
    the sealed bytes, because the target is not protected.
    """
    yield from _scan_sizes(folder, manifest, label_names)
    named = {file.path for file in manifest.storage} | {MANIFEST_FILE}
    members = member_digests(manifest)
    for path in sorted(folder.rglob("*")):
        name, mode = path.relative_to(folder).as_posix(), path.lstat().st_mode
        top = name.split("/")[0]
        # `.MEMBER.…` is a leftover of a member.
        is_in_member = any(top == member or top.startswith(f".{member}.") for member in members)
        if name in named or stat.S_ISDIR(mode) or is_in_member:
            continue
        yield Damage(name, "the manifest does not list this file" if stat.S_ISREG(mode) else _file_type_error(mode))


def _scan_sizes(folder: Path, manifest: Manifest, label_names: LabelNames | None) -> Iterator[StoredFile | Damage]:
    if not is_seal_intact(MANIFEST_FORMAT.read_raw(folder / MANIFEST_FILE)):
        yield Damage(MANIFEST_FILE, _BROKEN_SEAL)
    yield from (Damage(MANIFEST_FILE, what) for what in manifest.storage_errors(label_names))
    for file in manifest.storage:
        problem = size_error(folder, file)
        yield Damage(file.path, problem) if problem else file


def find_damage(folder: Path, manifest: Manifest) -> Iterator[Damage]:
    """Read every file that a manifest names, and yield the damage."""
    yield from (Damage(MANIFEST_FILE, what) for what in manifest.storage_errors())
    for file in manifest.storage:
        if problem := size_error(folder, file) or hash_error(folder, file):
            yield Damage(file.path, problem)


def repair_hint(folder: Path) -> str:
    """Return the fix for a damaged artifact: remove its folder, and build it again."""
    return f"remove {folder}, and run its recipe again"


def member_digests(manifest: Manifest) -> dict[str, str]:
    """Map the folder name of each member of an artifact to the member's digest."""
    return {str(entry["member"]): entry["digest"] for entry in manifest.identity.inputs if "member" in entry}


def read_member(folder: Path, member: str, digest: str) -> Manifest | Damage:
    """Read the manifest of a member, which is an artifact inside `folder`.

    Return Damage if the manifest is missing or damaged, or its digest is not `digest`.
    """
    try:
        manifest = read_manifest(folder / member)
    except InputError as error:
        return Damage(f"{member}/{MANIFEST_FILE}", error.what)
    if manifest is None or manifest.digest != digest:
        return Damage(member, f"digest is {manifest.digest if manifest else 'missing'}, sealed with {digest}")
    return manifest


def size_error(folder: Path, file: StoredFile) -> str | None:
    """Return a file's error (missing, unreadable, wrong type or size), or None."""
    try:
        status = os.lstat(folder / file.path)
    except (FileNotFoundError, NotADirectoryError):
        return "the file is missing"
    except OSError as error:
        return read_error_text(error)
    if not stat.S_ISREG(status.st_mode):
        return _file_type_error(status.st_mode)
    return None if status.st_size == file.bytes else f"has {status.st_size:,} bytes, sealed with {file.bytes:,}"


def _file_type_error(mode: int) -> str:
    what = "a link" if stat.S_ISLNK(mode) else "a folder" if stat.S_ISDIR(mode) else "a device, pipe or socket"
    return f"expected a plain file, got {what}"


def hash_error(folder: Path, file: StoredFile) -> str | None:
    """Describe an unreadable file or a wrong hash; None if correct."""
    try:
        actual = file_sha256(folder / file.path)
    except OSError as error:
        return read_error_text(error)
    return None if actual == file.sha256 else f"sha256 is {actual}, sealed with {file.sha256}"


@dataclass(frozen=True)
class Verdict:
    """Result of a check function: whether the check passed, why, and measured numbers.

    Attributes:
        applies: False if the artifact has nothing that this check could examine.
        is_minor: Whether a failure is only a warning, even if the check is blocking.
        is_final: False if the check must run again later, because an artifact to compare with is not built yet.
    """

    passed: bool
    because: str
    numbers: Mapping[str, int | float | str] = field(default_factory=dict)
    applies: bool = True
    is_minor: bool = False
    is_final: bool = True


CHECKS_SCHEMA = "corpusmill/checks/1"


class CheckResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """Recorded verdict of one check.

    If `blocking` is set, a failure stops builds that use the artifact; otherwise a failure is only a warning.
    """

    name: str
    passed: bool
    blocking: bool
    because: str
    numbers: dict[str, int | float | str] = {}
    applies: bool = True

    @classmethod
    def from_verdict(cls, name: str, is_blocking: bool, verdict: Verdict) -> "CheckResult":
        is_blocking, numbers = is_blocking and not verdict.is_minor, dict(verdict.numbers)
        return cls(name, verdict.passed, is_blocking, verdict.because, numbers, verdict.applies)

    @property
    def is_blocking_failure(self) -> bool:
        return self.blocking and not self.passed

    @property
    def state(self) -> str:
        """State as text: `passed`, `WARNING` or `FAILED`."""
        return "passed" if self.passed else "FAILED" if self.blocking else "WARNING"


class _CheckRecord(msgspec.Struct, frozen=True):
    schema: str
    digest: str
    results: tuple[CheckResult, ...]


_CHECK_RECORD_FORMAT = MetadataFormat("record of checks", 1 << 20, "delete it; the checks run again", _CheckRecord)


def write_check_results(folder: Path, digest: str, results: Sequence[CheckResult]) -> None:
    """Record the results of all checks of an artifact, in place of earlier results."""
    record = msgspec.json.encode(_CheckRecord(CHECKS_SCHEMA, digest, tuple(results)))
    durable.write_durably(check_record_path(folder), msgspec.json.format(record, indent=1) + b"\n")


def read_check_results(folder: Path, digest: str) -> tuple[CheckResult, ...] | None:
    """Read the check results for a digest; None if missing or unreadable."""
    record = _CHECK_RECORD_FORMAT.read_valid(check_record_path(folder))
    return record.results if record is not None and (record.schema, record.digest) == (CHECKS_SCHEMA, digest) else None


def check_record_path(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.checks.json")
