"""Files of a source on this machine: those that patterns match, their byte ranges, what changed."""

import contextlib
import glob
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Self

from pipeline_assets.corpus.formats.compression import detect_codec
from pipeline_assets.spine.errors import InputError, RetryableError, UsageError
from pipeline_assets.spine.files import ExpectedHash, expect_hash
from pipeline_assets.spine.manifest import Manifest

HEAD_BYTES = 16
UTF8_MARK_BYTES = 3
_FOLDER, _MODIFIED, _SHA256 = "folder", "modified_ns", "sha256:"
_CHANGED = "its bytes changed since they were hashed: give them back, or touch the file and run the recipe again"


@dataclass(frozen=True)
class SourceFile:
    """A file and how the manifest names it.

    Attributes:
        name: relative to the source's folder, with `/`.
        bytes: its size when it was listed; another size at reading is an error.
    """

    path: Path
    name: str
    bytes: int


@dataclass(frozen=True)
class ByteRange:
    """A part of a file of lines: the lines, or records of several lines, that begin in it.

    Attributes:
        start: in bytes, anywhere in a line.
        stop: the first byte that no more belongs to it; None for a file that is one range: it is compressed, or
            one text.
    """

    file: SourceFile
    start: int = 0
    stop: int | None = None

    @property
    def bytes(self) -> int:
        """As stored."""
        return (self.file.bytes if self.stop is None else self.stop) - self.start


def list_files(root: Path, patterns: Sequence[str]) -> list[SourceFile]:
    """Every file below `root` that a pattern matches, once, sorted by name.

    Patterns are read as a shell reads them: `*` stays in a folder and passes over hidden files, `**` doesn't stay. A
    pattern that is the name of a file is that file, whatever characters it has.

    Raises:
        UsageError: a pattern that matches no file, or leads out of `root`; what matches is no file that can be named.
        RetryableError: a folder that may not be read, whose files would be missing in silence.
    """
    try:
        return _list_files(root, patterns)
    except PermissionError as error:
        what = f"this folder can't be read ({error.strerror})"
        raise RetryableError(what, error.filename or root, "give the right to read it, or narrow the pattern") from None


def _list_files(root: Path, patterns: Sequence[str]) -> list[SourceFile]:
    names: set[str] = set()
    for pattern in patterns:
        parts = PurePosixPath(pattern).parts
        if os.path.isabs(pattern) or ".." in parts:
            raise UsageError(f"the pattern {pattern!r} leads out of it", root, "write patterns relative to this folder")
        if "**" in parts:
            _refuse_unreadable(root.joinpath(*parts[: parts.index("**")]))
        matches = [pattern] if (root / pattern).is_file() else glob.glob(pattern, root_dir=root, recursive=True)
        files = {PurePosixPath(match).as_posix() for match in matches if not (root / match).is_dir()}
        if not files:
            raise _no_match(root, pattern, bool(matches))
        names |= files
    return [_source_file(root, name) for name in sorted(names)]


def _refuse_unreadable(folder: Path) -> None:
    """Raise PermissionError if a folder below may not be read: `glob` passes over it, as over hidden ones."""

    def fail(error: OSError) -> None:
        raise error

    for _, folders, _ in os.walk(folder, onerror=fail):
        folders[:] = [name for name in folders if not name.startswith(".")]


def byte_value_ranges(file: SourceFile, range_bytes: int) -> list[ByteRange]:
    """The file in ranges of `range_bytes`, the last one shorter; a compressed or an empty file is one."""
    with open_source(file) as opened:
        is_compressed = detect_codec(opened.read(HEAD_BYTES)) is not None
    if is_compressed or file.bytes == 0:
        return [ByteRange(file)]
    step = max(range_bytes, UTF8_MARK_BYTES + 1)  # the first line, after its mark, begins in the first range
    return [ByteRange(file, start, min(start + step, file.bytes)) for start in range(0, file.bytes, step)]


def open_source(file: SourceFile) -> BinaryIO:
    """The file's bytes, unbuffered.

    Raises:
        InputError: it is gone, may not be read, or has another size than when it was listed.
    """
    try:
        opened = open(file.path, "rb", buffering=0)  # noqa: SIM115, the caller closes it
    except OSError as error:
        fix = "give back the file, or its rights"
        raise RetryableError(f"it can't be read ({error.strerror})", file.path, fix) from None
    size = os.fstat(opened.fileno()).st_size
    if size != file.bytes:
        opened.close()
        what = f"it has {size:,} bytes, and had {file.bytes:,} when it was listed"
        raise RetryableError(what, file.path, "let nothing write to it, and run again")
    return opened


def _source_file(root: Path, name: str) -> SourceFile:
    path = root / name
    if not path.is_file():
        raise UsageError("this is a broken link, or no ordinary file", path, "remove it, or narrow the pattern")
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        raise UsageError("its name is not UTF-8", ascii(name), "rename it: manifests name files in UTF-8") from None
    return SourceFile(path, name, path.stat().st_size)


def has_files(folder: Path) -> bool:
    """Whether any file lies in a folder or below it."""
    return any(path.is_file() for path in folder.rglob("*"))


def _no_match(root: Path, pattern: str, has_folders: bool) -> UsageError:
    if not root.is_dir():
        return UsageError("there is no such folder", root, "correct the source's folder")
    if has_folders:
        fix = f"write {pattern.rstrip('/')}/* for the files in it"
        return UsageError(f"the pattern {pattern!r} matches folders only", root, fix)
    folder = next(above for above in (root / pattern).parents if above.is_dir())
    present = sorted(entry.name + ("/" if entry.is_dir() else "") for entry in folder.iterdir())
    shown = ", ".join(present[:5]) + (f" and {len(present) - 5} more" if len(present) > 5 else "")
    return UsageError(f"no file matches {pattern!r}", folder, f"correct `files`; there are {shown or 'no files'}")


@dataclass(frozen=True)
class InputFolder(ABC):
    """A folder of this machine, some files of which are an input. The path is absolute, or below the data root: where
    the folder lies changes no digest, since manifests have names, sizes and hashes.
    """

    path: Path

    @abstractmethod
    def names(self) -> Sequence[str]:
        """Patterns of the files that are read, as the folder is now; its path is absolute."""

    def below(self, root: Path) -> Self:
        """The folder, its path absolute."""
        return replace(self, path=(root / self.path).absolute())

    def files(self) -> list[SourceFile]:
        """What the patterns match, sorted by name."""
        return list_files(self.path, self.names())

    def describe_changes(self, root: Path, manifest: Manifest) -> str | None:
        """What is not as it was when the manifest was sealed, by names, sizes and times of change; None if all is.

        A folder that is gone has not changed: what was read of it stays.
        """
        here = self.below(root)
        if not here.path.is_dir():
            return None
        try:
            listing = here.files()
        except InputError as error:
            return error.what
        listed = {entry["name"]: entry["bytes"] for entry in manifest.identity.inputs}
        names = {file.name: file.bytes for file in listing}
        different = sorted(name for name in listed.keys() | names.keys() if listed.get(name) != names.get(name))
        if not different and manifest.provenance.get(_MODIFIED) != modified_ns(listing):
            return f"files in {here.path} were written again"
        if not different:
            return None
        return f"{len(different):,} of the files in {here.path} changed, the first is {different[0]}"


@dataclass(frozen=True)
class SourceFolder(InputFolder):
    """Files below a folder, by patterns as `list_files` reads them."""

    patterns: tuple[str, ...]

    def names(self) -> Sequence[str]:
        return self.patterns


def has_changed(manifest: Manifest, folder: Path, name: str) -> bool:
    """Whether a file of a folder is not what it was when the manifest was sealed, by its size and its time of change.
    One that is gone has not changed, nor has one of a manifest that says nothing of it.
    """
    modified = manifest.provenance.get(_MODIFIED, [])
    for entry, was in zip(manifest.identity.inputs, modified, strict=False):
        if entry["name"] == name:
            try:
                found = (folder / name).stat()
            except OSError:
                return False
            return (found.st_size, found.st_mtime_ns) != (entry["bytes"], was)
    return False


def modified_ns(files: Sequence[SourceFile]) -> list[int]:
    """When each file was last changed."""
    return [file.path.stat().st_mtime_ns for file in files]


def to_provenance(folder: InputFolder, files: Sequence[SourceFile], root: Path) -> dict[str, Any]:
    """Where the files lie, as `input_folder` reads it back: below the data root relative to it, since both may move."""
    path = folder.path.relative_to(root) if folder.path.is_relative_to(root) else folder.path
    return {_FOLDER: str(path), _MODIFIED: modified_ns(files)}


def input_folder(manifest: Manifest, root: Path) -> SourceFolder | None:
    """The folder that a manifest's inputs were read from, its path absolute; None where it names none. The artifact
    lies in the data root.
    """
    path, patterns = folder_path(manifest, root), manifest.identity.recipe.get("files")
    return SourceFolder(path, tuple(patterns)) if path is not None and patterns else None


def folder_path(manifest: Manifest, root: Path) -> Path | None:
    """Where the files of a manifest's inputs lie, absolute; None where it names no folder."""
    path = manifest.provenance.get(_FOLDER)
    return (root / path).absolute() if isinstance(path, str) else None


@contextlib.contextmanager
def files_while_read(path: Path, pin: Manifest) -> Iterator[list[SourceFile]]:
    """The files of a folder that a pin lists, in its order, while they are read.

    Raises:
        InputError: they are not as they are listed, before or after.
    """
    folder = SourceFolder(path, tuple(entry["name"] for entry in pin.identity.inputs))
    yield selected_files(folder, pin)
    selected_files(folder, pin)  # else they were written to while they were read


def selected_files(folder: SourceFolder, manifest: Manifest) -> list[SourceFile]:
    """The files that a manifest lists, in the folder where they lie now; its path is absolute. A build that asks for
    them reads them, so they are held against the manifest's hashes.

    Raises:
        InputError: they are gone, or not as they were.
    """
    if not folder.path.is_dir():
        what = "the folder that its files were read from is gone"
        fix = "give it back, or leave a link there to where it is now, or correct the source's path"
        raise RetryableError(what, folder.path, fix)
    reason = folder.describe_changes(Path(), manifest)
    if reason is not None:
        fix = "let nothing write there, and run the recipe again"
        raise InputError(f"{reason} since they were hashed", folder.path, fix)
    entries = manifest.identity.inputs
    files = [SourceFile(folder.path / entry["name"], entry["name"], entry["bytes"]) for entry in entries]
    for file, entry in zip(files, entries, strict=True):
        promise = ExpectedHash(entry["digest"].removeprefix(_SHA256), f"{manifest.name} lists", _CHANGED)
        expect_hash(file.path, promise, is_streamed=True)
    return files
