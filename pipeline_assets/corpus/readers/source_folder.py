"""Source files in local folders, listed by patterns and compared with manifests."""

import contextlib
import errno
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Self

from pipeline_assets.corpus.formats.codecs import detect_codec
from pipeline_assets.corpus.readers.file_patterns import is_excluded, matching_names, utf8_name
from pipeline_assets.spine.errors import InputError, RetryableError, UsageError
from pipeline_assets.spine.manifest import Manifest
from pipeline_assets.spine.verified_reads import ExpectedHash, expect_hash

HEAD_BYTES = 16
UTF8_MARK_BYTES = 3
_BROKEN_LINK_ERRNOS = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_FOLDER_KEY, _MODIFIED_KEY, _SHA256_PREFIX = "folder", "modified_ns", "sha256:"
_CHANGED_FIX = "the file changed after it was hashed: restore it, or touch it and run the recipe again"


@dataclass(frozen=True)
class SourceFile:
    """Local file, with its name in manifests and its listed size."""

    path: Path
    name: str  # path relative to the source's folder, with `/`
    bytes: int  # size when the file was listed; reading a file of a different size is an error


@dataclass(frozen=True)
class ByteRange:
    """Byte range of a file; a line or record belongs to the range in which it begins."""

    file: SourceFile
    start: int = 0  # possibly in the middle of a line
    stop: int | None = None  # exclusive; None if the file is one range, because it is compressed or one text

    @property
    def bytes(self) -> int:
        """Size of the range in bytes as stored, possibly compressed."""
        return (self.file.bytes if self.stop is None else self.stop) - self.start


def list_files(root: Path, patterns: Sequence[str], exclude: Sequence[str] = ()) -> list[SourceFile]:
    """List the files below `root` that match a pattern and none of `exclude`, sorted.

    Patterns have shell syntax: `*` matches within one folder and ignores hidden files, `**` matches any number of
    folders. A pattern that equals a file's name matches this file, even if the name has special characters. Links are
    followed, except a link to a folder that contains the link. Raise UsageError if one of `patterns` has no match, or
    if any pattern leads out of `root`. Raise RetryableError for an unreadable folder.
    """
    for pattern in (*patterns, *exclude):
        if os.path.isabs(pattern) or ".." in PurePosixPath(pattern).parts:
            what = f"the pattern {pattern!r} leads out of the folder"
            raise UsageError(what, root, "write patterns relative to this folder")
    try:
        return [_source_file(root, name) for name in matching_names(root, patterns) if not is_excluded(name, exclude)]
    except PermissionError as error:
        what = f"the folder cannot be read ({error.strerror})"
        raise RetryableError(what, error.filename or root, "grant read permission, or narrow the pattern") from None


def split_byte_ranges(file: SourceFile, range_bytes: int) -> list[ByteRange]:
    """Divide a file into ranges of `range_bytes`; a compressed file is one range."""
    if is_compressed(file) or file.bytes == 0:
        return [ByteRange(file)]
    step = max(range_bytes, UTF8_MARK_BYTES + 1)  # so that the first line, after a mark, begins in the first range
    return [ByteRange(file, start, min(start + step, file.bytes)) for start in range(0, file.bytes, step)]


def is_compressed(file: SourceFile) -> bool:
    """Check whether a file is compressed, by its first bytes instead of its name."""
    with open_source(file) as opened:
        return detect_codec(opened.read(HEAD_BYTES)) is not None


def open_source(file: SourceFile) -> BinaryIO:
    """Open a file for unbuffered reading.

    Raises:
        RetryableError: The file cannot be read, or its size differs from `file.bytes`.
    """
    try:
        opened = open(file.path, "rb", buffering=0)  # noqa: SIM115 - the caller closes it
    except OSError as error:
        fix = "restore the file or its permissions"
        raise RetryableError(f"the file cannot be read ({error.strerror})", file.path, fix) from None
    size = os.fstat(opened.fileno()).st_size
    if size != file.bytes:
        opened.close()
        what = f"the file has {size:,} bytes, but had {file.bytes:,} when it was listed"
        raise RetryableError(what, file.path, "stop writing to the file, and run again")
    return opened


def _source_file(root: Path, name: str) -> SourceFile:
    path, status = root / name, None
    try:
        status = path.stat()
    except OSError as error:
        if error.errno not in _BROKEN_LINK_ERRNOS:
            raise
    if status is None or not stat.S_ISREG(status.st_mode):
        fix = "remove it, or list it in `exclude`, which only local sources have"
        raise UsageError("not a regular file, or a broken link", path, fix)
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        what = "the file name is not UTF-8, as names in manifests are"
        fix = f"rename the file, or list {utf8_name(name)!r} in `exclude`, which only local sources have"
        raise UsageError(what, ascii(name), fix) from None
    return SourceFile(path, name, status.st_size)


def has_files(folder: Path) -> bool:
    """Check whether a folder contains a file, directly or in subfolders."""
    return any(path.is_file() for path in folder.rglob("*"))


@dataclass(frozen=True)
class InputFolder(ABC):
    """Local folder that contains input files.

    `path` is absolute, or relative to the data root. The path does not affect digests: manifests have the names, sizes
    and hashes of files.
    """

    path: Path

    @abstractmethod
    def files(self) -> list[SourceFile]:
        """List the input files, sorted by name; `path` must be absolute."""

    def resolve_path(self, root: Path) -> Self:
        """Return a copy with an absolute path; `root` is the data root."""
        return replace(self, path=(root / self.path).absolute())

    def describe_changes(self, root: Path, manifest: Manifest) -> str | None:
        """Describe how the folder or its files differ from a sealed manifest.

        Return None if nothing differs. The names, sizes and times of the files are compared, unless the folder is
        missing. A path other than the manifest's counts as a difference only if the manifest's folder exists and
        the data root does not seem to be a copy. If the files cannot be listed, return the text of the error.
        """
        folder, sealed_path, base = self.resolve_path(root), input_folder_path(manifest, root), root.absolute()
        exists = folder.path.is_dir()
        changed = folder.describe_changed_files(manifest) if exists else None
        if sealed_path is None or not sealed_path.is_dir() or (exists and sealed_path.samefile(folder.path)):
            return changed
        # The recipes of a copied data root may still name the original folders of its sources.
        is_local = folder.path.is_relative_to(base)
        is_copied = sealed_path.is_relative_to(base) != is_local and (exists or not is_local)
        return changed if is_copied else f"the files were read from {sealed_path}, the recipe has {folder.path}"

    def describe_changed_files(self, manifest: Manifest) -> str | None:
        """Describe changed names, sizes or times, or return None; `path` must be absolute."""
        try:
            listing = self.files()
        except InputError as error:
            return error.what
        listed = {entry["name"]: entry["bytes"] for entry in manifest.identity.inputs}
        names = {file.name: file.bytes for file in listing}
        different = sorted(name for name in listed.keys() | names.keys() if listed.get(name) != names.get(name))
        if not different and manifest.provenance.get(_MODIFIED_KEY) != modification_times_ns(listing):
            return f"files in {self.path} were rewritten"
        if not different:
            return None
        first = different[0]
        kind = " (new)" if first not in listed else " (missing)" if first not in names else ""
        return f"{len(different):,} of the files in {self.path} changed; the first is {first}{kind}"


@dataclass(frozen=True)
class SourceFolder(InputFolder):
    """Folder of input files that match `patterns` but not `exclude`; see `list_files`."""

    patterns: tuple[str, ...]
    exclude: tuple[str, ...] = ()

    def files(self) -> list[SourceFile]:
        return list_files(self.path, self.patterns, self.exclude)

    def excluded_files(self) -> Iterator[tuple[str, str]]:
        """Yield (file name, pattern) for each excluded file, once per matching pattern."""
        names = matching_names(self.path, self.patterns) if self.exclude else ()
        excluded = [name for name in names if is_excluded(name, self.exclude)]
        yield from ((name, pattern) for pattern in self.exclude for name in excluded if is_excluded(name, [pattern]))


def has_changed_since_seal(manifest: Manifest, folder: Path, name: str) -> bool:
    """Check by size and time whether a file changed; False if deleted or not listed."""
    modified = manifest.provenance.get(_MODIFIED_KEY, [])
    for entry, modified_before in zip(manifest.identity.inputs, modified, strict=False):
        if entry["name"] == name:
            try:
                status = (folder / name).stat()
            except OSError:
                return False
            return (status.st_size, status.st_mtime_ns) != (entry["bytes"], modified_before)
    return False


def modification_times_ns(files: Sequence[SourceFile]) -> list[int]:
    """Return the modification time of each file, in nanoseconds since 1970."""
    return [file.path.stat().st_mtime_ns for file in files]


def folder_provenance(folder: InputFolder, files: Sequence[SourceFile], root: Path) -> dict[str, Any]:
    """Return the provenance of input files: their folder and modification times.

    The path of a folder inside the data root is relative to the root, so that the root can be moved.
    """
    path = folder.path.relative_to(root) if folder.path.is_relative_to(root) else folder.path
    return {_FOLDER_KEY: str(path), _MODIFIED_KEY: modification_times_ns(files)}


def input_folder(manifest: Manifest, root: Path) -> SourceFolder | None:
    """Return a manifest's input folder; None if the manifest lacks path or patterns."""
    path, recipe = input_folder_path(manifest, root), manifest.identity.recipe
    patterns = recipe.get("files")
    return SourceFolder(path, (*patterns,), (*recipe.get("exclude", ()),)) if path is not None and patterns else None


def input_folder_path(manifest: Manifest, root: Path) -> Path | None:
    """Return the absolute path of a manifest's input folder; None if not recorded."""
    path = manifest.provenance.get(_FOLDER_KEY)
    return (root / path).absolute() if isinstance(path, str) else None


@contextlib.contextmanager
def open_pinned_files(path: Path, pin: Manifest) -> Iterator[list[SourceFile]]:
    """Yield a pin's files; InputError if they change before or in the `with` block."""
    folder = SourceFolder(path, tuple(entry["name"] for entry in pin.identity.inputs))
    yield check_listed_files(folder, pin)
    check_listed_files(folder, pin)  # raises if a file was changed while it was read


def check_listed_files(folder: SourceFolder, manifest: Manifest) -> list[SourceFile]:
    """Return the files that a manifest lists, and check that they are unchanged.

    Raise InputError if names, sizes or times have changed. Hashes are checked later, while the files are read.
    """
    if not folder.path.is_dir():
        what = "the source folder no longer exists"
        fix = "restore it, create a link to its new path, or correct the source's path"
        raise RetryableError(what, folder.path, fix)
    reason = folder.describe_changed_files(manifest)
    if reason is not None:
        fix = "restore the files, or stop writing to the folder and run the recipe again"
        raise InputError(f"changed since the files were hashed: {reason}", folder.path, fix)
    entries = manifest.identity.inputs
    files = [SourceFile(folder.path / entry["name"], entry["name"], entry["bytes"]) for entry in entries]
    for file, entry in zip(files, entries, strict=True):
        expected = ExpectedHash(entry["digest"].removeprefix(_SHA256_PREFIX), f"{manifest.name} lists", _CHANGED_FIX)
        expect_hash(file.path, expected, is_streamed=True)
    return files
