"""Files of a source on this machine: which the patterns of a recipe match, and their cut into byte ranges."""

import glob
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from pipeline_assets.corpus.formats.compression import codec_of
from pipeline_assets.corpus.spine.errors import Obstacle, UsageError

HEAD_BYTES = 16
UTF8_MARK_BYTES = 3


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
        stop: the first byte that no more belongs to it; None for a compressed file, which is one range.
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
        Obstacle: a folder that may not be read, whose files would be missing in silence.
    """
    try:
        return _list_files(root, patterns)
    except PermissionError as error:
        what = f"this folder can't be read ({error.strerror})"
        raise Obstacle(what, error.filename or root, "give the right to read it, or narrow the pattern") from None


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
    """
    Raises:
        PermissionError: a folder below may not be read. `glob` passes over it, as it does over hidden ones.
    """

    def fail(error: OSError) -> None:
        raise error

    for _, folders, _ in os.walk(folder, onerror=fail):
        folders[:] = [name for name in folders if not name.startswith(".")]


def byte_ranges(file: SourceFile, range_bytes: int) -> list[ByteRange]:
    """The file in ranges of `range_bytes`, the last one shorter; a compressed or an empty file is one."""
    with open_source(file) as opened:
        is_compressed = codec_of(opened.read(HEAD_BYTES)) is not None
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
        raise Obstacle(f"it can't be read ({error.strerror})", file.path, "give back the file, or its rights") from None
    size = os.fstat(opened.fileno()).st_size
    if size != file.bytes:
        opened.close()
        what = f"it has {size:,} bytes, and had {file.bytes:,} when it was listed"
        raise Obstacle(what, file.path, "let nothing write to it, and run again")
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


def _no_match(root: Path, pattern: str, has_folders: bool) -> UsageError:
    if not root.is_dir():
        return UsageError("there is no such folder", root, "correct the source's folder")
    if has_folders:
        return UsageError(
            f"the pattern {pattern!r} matches folders only", root, f"write {pattern.rstrip('/')}/* for the files in it"
        )
    folder = root
    for part in PurePosixPath(pattern).parts[:-1]:
        if not (folder / part).is_dir():
            break
        folder /= part
    present = sorted(entry.name + ("/" if entry.is_dir() else "") for entry in folder.iterdir())
    shown = ", ".join(present[:5]) + (f" and {len(present) - 5} more" if len(present) > 5 else "")
    return UsageError(f"no file matches {pattern!r}", folder, f"correct `files`; there are {shown or 'no files'}")
