"""Bytes of a Posts.xml, read from the file itself or streamed from a site's .7z."""

import lzma
import os
import re
import struct
import zlib
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath, PureWindowsPath
from types import SimpleNamespace
from typing import TYPE_CHECKING, BinaryIO, cast

from pipeline_assets.spine.errors import InputError, RetryableError, one_line
from pipeline_assets.spine.install_hints import install_hint

if TYPE_CHECKING:
    from py7zr import SevenZipFile
    from py7zr.io import WriterFactory

POSTS_FILE = "Posts.xml"
_TABLES = "Badges|Comments|PostHistory|PostLinks|Posts|Tags|Users|Votes"
_HOST = re.compile(rf"(?P<host>[A-Za-z0-9.-]+\.[A-Za-z]+)(?:-(?P<table>{_TABLES}))?")
_MAX_EXPANSION = 100  # text compresses to a tenth at best
_MAGIC = b"7z\xbc\xaf\x27\x1c"
_HEAD_BYTES = 60
_BLOCK_BYTES = 1 << 18  # larger blocks are evicted from the CPU cache before they are scanned: 20 % slower
_DAMAGE_ERRORS = (lzma.LZMAError, zlib.error, struct.error, EOFError, OSError, ValueError, LookupError, TypeError)
_FIX = "fetch it again"
# py7zr unpacks a whole input block of these methods in memory: 256 KiB of ZStandard can expand to 8 GB.
_UNBOUNDED_METHODS = frozenset({"DEFLATE", "DEFLATE64", "ZStandard", "Brotli"})


class OtherTableError(InputError):
    """Error about an archive with a site's comments or another table instead of posts."""


def is_archive(file: Path) -> bool:
    """Check whether a file is a 7z archive; raise InputError if it is only named .7z."""
    try:
        with open(file, "rb") as source:
            head = source.read(_HEAD_BYTES)
    except OSError as error:
        fix = f"pass a {POSTS_FILE} or a site's .7z"
        raise RetryableError(f"the file cannot be read ({error.strerror})", file, fix) from None
    if file.suffix == ".7z" and not head.startswith(_MAGIC):
        content = f"the file begins with {head.decode('utf-8', 'replace')!r}" if head else "the file is empty"
        raise InputError(f"not a 7z archive: {content}", file, _FIX)
    return head.startswith(_MAGIC)


def site_host(file: Path) -> str:
    """Return the site's host from the name `<host>.7z` or `<host>-Posts.7z`.

    For a file without the suffix .7z, use the name of its folder, `<host>` or `<host>-Posts`. Raise InputError if
    `<host>` is not a host name with a dot, and OtherTableError for names such as `<host>-Comments.7z`.
    """
    name = file.name.removesuffix(".7z") if file.suffix == ".7z" else file.absolute().parent.name
    match = _HOST.fullmatch(name)
    if match is None:
        fix = "set it, such as stackoverflow.com, or rename the file to <site>.7z or <site>/Posts.xml"
        raise InputError("the path does not contain the site", file, fix)
    if (table := match["table"] or "Posts") != "Posts":
        raise OtherTableError(f"expected a site's posts, got its {table}", file, "pass <site>-Posts.7z")
    return match["host"].lower()


def posts_bytes(file: Path, start: int = 0, stop: int | None = None) -> Generator[bytes, None, None]:
    """Yield the bytes of a Posts.xml in blocks, from `start` to `stop`.

    Without `stop`, read to the end. An archive is always unpacked whole, by a thread; close the iterator to stop the
    thread early. A damaged archive raises InputError, possibly only after the last block.
    """
    if not is_archive(file):
        with open(file, "rb", buffering=0) as source:
            source.seek(start)
            remaining = file.stat().st_size - start if stop is None else stop - start
            while remaining and (block := source.read(min(remaining, _BLOCK_BYTES))):
                yield block
                remaining -= len(block)
        return
    reading, writing = os.pipe()
    # Closing the iterator closes `packed`, so that the thread stops at its next read. Otherwise it could skip
    # gigabytes of the archive before a write to the closed pipe fails.
    with ThreadPoolExecutor(1) as thread, open(reading, "rb") as pipe, open(file, "rb") as packed:
        unpacking = thread.submit(_unpack, packed, file, writing)
        while block := pipe.read(_BLOCK_BYTES):
            yield block
        unpacking.result()


def _unpack(archive_file: BinaryIO, archive_path: Path, pipe_fd: int) -> None:
    """Unpack the Posts.xml of an archive into the pipe with the descriptor `pipe_fd`."""
    with open(pipe_fd, "wb") as pipe:
        open_archive = require_py7zr(archive_path)
        from py7zr.exceptions import ArchiveError, CrcError, PasswordRequired, UnsupportedCompressionMethodError

        factory = cast("WriterFactory", SimpleNamespace(create=lambda name: pipe))
        try:
            with open_archive(archive_file, blocksize=_BLOCK_BYTES) as archive:
                archive.extract(targets=[_find_posts_xml(archive, archive_path)], factory=factory)
        except (ArchiveError, PasswordRequired, MemoryError, *_DAMAGE_ERRORS) as error:
            what, fix = f"the archive is damaged ({type(error).__name__}: {one_line(error, 100)})", _FIX
            match error:
                case PasswordRequired():
                    what, fix = "the archive is encrypted", "unpack it yourself: no dump is encrypted"
                case CrcError():
                    what = "the archive's checksum does not match"
                case UnsupportedCompressionMethodError():
                    what, fix = f"py7zr does not support the archive's compression ({error})", "unpack it yourself"
            raise InputError(what, archive_path, fix) from None


def require_py7zr(file: Path) -> "type[SevenZipFile]":
    """Return py7zr's archive class; raise RetryableError if py7zr is not installed."""
    try:
        import py7zr
    except ImportError:
        fix = f"{install_hint('stackexchange')}, or unpack the archive"
        raise RetryableError("reading a .7z needs py7zr", file, fix) from None
    return py7zr.SevenZipFile


def _find_posts_xml(archive: "SevenZipFile", file: Path) -> str:
    """Return the name of an archive's only Posts.xml, if it is safe to unpack."""
    names = [entry.filename for entry in archive.files if not entry.is_directory]
    unsafe = [name for name in names if PureWindowsPath(name).anchor or ".." in PureWindowsPath(name).parts]
    if unsafe:
        what = f"the archive contains a file outside its folder, {unsafe[0]!r}"
        raise InputError(what, file, "no dump contains one: fetch it again")
    matches = [name for name in names if PurePosixPath(name).name == POSTS_FILE]
    if len(matches) != 1:
        preview = ", ".join(sorted(names)[:5]) or "nothing"
        what = f"the archive must contain one {POSTS_FILE}, got {len(matches)}; it contains {preview}"
        raise InputError(what, file, f"pass an archive with one {POSTS_FILE}")
    unbounded = sorted(_UNBOUNDED_METHODS.intersection(archive.archiveinfo().method_names))
    if unbounded:
        what = f"the archive uses {unbounded[0]}, which py7zr unpacks without a memory limit"
        raise InputError(what, file, "unpack it yourself")
    # py7zr never unpacks more than these sizes, 128 MB at a time.
    size, unpacked = file.stat().st_size, sum(entry.uncompressed for entry in archive.files)
    if unpacked > _MAX_EXPANSION * size:
        what = f"the archive's {size:,} bytes would unpack to {unpacked:,}, more than {_MAX_EXPANSION} times as many"
        raise InputError(what, file, "if you trust the archive, unpack it yourself; otherwise fetch it again")
    return matches[0]
