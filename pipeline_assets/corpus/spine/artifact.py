"""Sealed artifacts: a folder whose last-written file is `manifest.json`. Opened, listed and verified here."""

import hashlib
import os
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from pipeline_assets.corpus.spine.errors import InputError, Obstacle, UsageError
from pipeline_assets.corpus.spine.manifest import FILE_NAME, Manifest, StoredFile

_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class Artifact:
    """A sealed folder, its manifest read and the sizes of its files checked."""

    folder: Path
    manifest: Manifest

    def path(self, name: str) -> Path:
        """The file `name` of the manifest's storage.

        Raises:
            InputError: the manifest names no such file.
        """
        if not any(file.path == name for file in self.manifest.storage):
            known = ", ".join(file.path for file in self.manifest.storage[:5]) or "no files"
            raise InputError(f"holds no file {name!r}", self.folder, f"it holds {known}")
        return self.folder / name

    def members(self) -> list[Manifest]:
        """Manifests of the artifacts inside this one's folder that are its content."""
        names = [str(entry["member"]) for entry in self.manifest.identity.inputs if "member" in entry]
        return [manifest for name in names if (manifest := read_manifest(self.folder / name)) is not None]


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of a sealed folder; None where nothing is sealed.

    Raises:
        InputError: there is one, but it is no manifest or was edited.
    """
    path = folder / FILE_NAME
    try:
        return Manifest.from_bytes(path.read_bytes(), path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def open_artifact(folder: Path, digest: str | None = None) -> Artifact:
    """A sealed artifact, ready to read.

    Args:
        digest: what the caller expects; the folder may have been replaced since it looked.
    Raises:
        InputError: nothing sealed there, another digest, or a file missing or of another size.
    """
    manifest = read_manifest(folder)
    if manifest is None:
        raise InputError("nothing is sealed here (no manifest.json)", folder, "build it, or wait for its build to end")
    if digest is not None and manifest.digest != digest:
        raise Obstacle(f"digest is {manifest.digest}, expected {digest}", folder, "it was replaced: run again")
    for file in manifest.storage:
        complaint = _size_complaint(folder, file)
        if complaint:
            raise InputError(complaint, folder / file.path, "run `corpusmill verify` on the folder, then rebuild it")
    return Artifact(folder, manifest)


@dataclass(frozen=True)
class Damage:
    """One thing about a folder that its manifest contradicts."""

    path: str
    what: str


def sealed_manifest(folder: Path) -> Manifest:
    """The manifest of a folder that should be an artifact.

    Raises:
        UsageError: nothing is sealed there.
        InputError: the manifest itself was edited.
    """
    if not folder.is_dir():
        what = "this is a file" if folder.exists() else "there is no such folder"
        raise UsageError(what, folder, "give the folder of a finished artifact")
    manifest = read_manifest(folder)
    if manifest is None:
        raise UsageError("nothing is sealed here (no manifest.json)", folder, "give the folder of a finished artifact")
    return manifest


def verify(folder: Path) -> Iterator[StoredFile | Damage]:
    """Reads every file again: yields it when it is as sealed, else what is wrong with it.

    Files that the manifest doesn't name are damage too. A folder that is an artifact inside this one is verified with
    it.

    Raises:
        InputError: nothing is sealed there, or the manifest itself was edited.
    """
    manifest = sealed_manifest(folder)
    for item in present_files(folder, manifest):
        complaint = _hash_complaint(folder, item) if isinstance(item, StoredFile) else None
        yield Damage(item.path, complaint) if complaint else item
    for member, digest in members_of(manifest).items():
        found = sealed_member(folder, member, digest)
        if isinstance(found, Damage):
            yield found
            continue
        for item in verify(folder / member):
            yield replace(item, path=f"{member}/{item.path}")


def present_files(folder: Path, manifest: Manifest) -> Iterator[StoredFile | Damage]:
    """What a look at a sealed folder tells, no file read but the manifest: its files, where they have their sizes, and
    what is wrong otherwise. Members are left out.
    """
    if not manifest.was_written_as((folder / FILE_NAME).read_bytes()):
        yield Damage(FILE_NAME, "it isn't the bytes that were sealed, though its identity is")
    for file in manifest.storage:
        complaint = _size_complaint(folder, file)
        yield Damage(file.path, complaint) if complaint else file
    named = {file.path for file in manifest.storage} | {FILE_NAME}
    members = members_of(manifest)
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name not in named and not _belongs_to_a_member(name, members):
            yield Damage(name, "the manifest doesn't name this file")


def verify_stored(folder: Path, manifest: Manifest) -> Iterator[StoredFile | Damage]:
    """Reads every file that a manifest names again: yields it when it is as sealed, else what is wrong with it."""
    for file in manifest.storage:
        complaint = _size_complaint(folder, file) or _hash_complaint(folder, file)
        yield Damage(file.path, complaint) if complaint else file


def refuse_edited(artifact: Artifact, names: Container[str]) -> None:
    """Reads some files of an artifact again, whose content more than a reader's next step depends on.

    Raises:
        InputError: one is not as it was sealed.
    """
    for file in artifact.manifest.storage:
        complaint = _hash_complaint(artifact.folder, file) if file.path in names else None
        if complaint:
            fix = f"build it again: corpusmill rebuild {artifact.folder} --put-back"
            raise InputError(complaint, artifact.folder / file.path, fix)


def members_of(manifest: Manifest) -> dict[str, str]:
    """Digests of the artifacts inside this one's folder that are its content, by the name of their folders."""
    return {str(entry["member"]): entry["digest"] for entry in manifest.identity.inputs if "member" in entry}


def sealed_member(folder: Path, member: str, digest: str) -> Manifest | Damage:
    """The manifest of a member; damage where another artifact is in its place, or none."""
    try:
        found = read_manifest(folder / member)
    except InputError as error:
        return Damage(f"{member}/{FILE_NAME}", error.what)
    if found is None or found.digest != digest:
        return Damage(member, f"digest is {found.digest if found else 'missing'}, sealed with {digest}")
    return found


def _belongs_to_a_member(name: str, members: Iterable[str]) -> bool:
    """Whether a file is a member's, or what lies beside one: a lock, what checks said, a waiting folder."""
    top = name.split("/")[0]
    return any(
        top == member or top.startswith((f".{member}.", f"{member}.building.", f"{member}.old.")) for member in members
    )


def file_sha256(path: Path) -> str:
    """Hex sha256 of a file's bytes, read in blocks."""
    with open(path, "rb", buffering=0) as file:
        return stream_sha256(file)


def stream_sha256(file: BinaryIO) -> str:
    """Hex sha256 of what is left of a stream."""
    digest = hashlib.sha256()
    block = bytearray(_BLOCK_BYTES)
    while count := file.readinto(block):  # type: ignore[attr-defined]
        digest.update(memoryview(block)[:count])
    return digest.hexdigest()


def _size_complaint(folder: Path, file: StoredFile) -> str | None:
    try:
        size = os.stat(folder / file.path).st_size
    except (FileNotFoundError, NotADirectoryError):
        return "the file is missing"
    except OSError as error:
        return unreadable(error)
    return None if size == file.bytes else f"has {size:,} bytes, sealed with {file.bytes:,}"


def _hash_complaint(folder: Path, file: StoredFile) -> str | None:
    try:
        actual = file_sha256(folder / file.path)
    except OSError as error:
        return unreadable(error)
    return None if actual == file.sha256 else f"sha256 is {actual}, sealed with {file.sha256}"


def unreadable(error: OSError) -> str:
    """What to say of a file that the system doesn't give: a bad sector, a missing right, a folder in its place."""
    return f"it can't be read ({error.strerror or error})"
