"""The bytes of Posts.xml: of the file itself, or out of a site's .7z, which is never unpacked to disk."""

import lzma
import os
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

POSTS = "Posts.xml"
_MOST_EXPANSION = 100  # text packs to a tenth at best
_MAGIC = b"7z\xbc\xaf\x27\x1c"
_SHOWN_BYTES = 60
_BLOCK_BYTES = 1 << 18  # larger ones leave the cache before they are scanned and copied: a fifth slower
_DAMAGE = (lzma.LZMAError, zlib.error, struct.error, EOFError, OSError, ValueError, LookupError, TypeError)
_FETCH_AGAIN = "fetch it again"
# Of these py7zr unpacks all that it has read at once: a quarter of a megabyte of ZStandard can be eight gigabytes.
_UNBOUNDED_METHODS = frozenset({"DEFLATE", "DEFLATE64", "ZStandard", "Brotli"})


def is_archive(file: Path) -> bool:
    """Whether a file is a 7z archive, by its first bytes.

    Raises:
        InputError: it can't be read; it is named as one and isn't, as a page that a server sent in its place.
    """
    try:
        with open(file, "rb") as source:
            head = source.read(_SHOWN_BYTES)
    except OSError as error:
        raise RetryableError(f"it can't be read ({error.strerror})", file, f"give a {POSTS} or a site's .7z") from None
    if file.suffix == ".7z" and not head.startswith(_MAGIC):
        shown = f"it begins with {head.decode('utf-8', 'replace')!r}" if head else "it is empty"
        raise InputError(f"it is no 7z archive: {shown}", file, _FETCH_AGAIN)
    return head.startswith(_MAGIC)


def site_host(file: Path) -> str:
    """The site that a file's place tells: `<site>.7z`, `<site>-Posts.7z`, `<site>/Posts.xml`.

    Raises:
        InputError: it tells none.
    """
    name = file.name.removesuffix(".7z").removesuffix("-Posts") if file.suffix == ".7z" else file.absolute().parent.name
    if "." not in name or not name.replace(".", "").replace("-", "").isalnum() or not name.isascii():
        fix = "say which, such as stackoverflow.com, or name it <site>.7z or <site>/Posts.xml"
        raise InputError("its place tells no site", file, fix)
    return name.lower()


def posts_bytes(file: Path, start: int = 0, stop: int | None = None) -> Generator[bytes, None, None]:
    """Yield a Posts.xml from byte `start` to `stop`, or that in an archive from end to end, in blocks.

    A thread unpacks an archive, a pipe's size ahead: close the iterator if you leave it.

    Raises:
        InputError: an archive has no Posts.xml, or two; wants a password; unpacks to more than allowed, or in steps
            that nothing bounds; is damaged, which its checksum may show after the last block.
    """
    if not is_archive(file):
        with open(file, "rb", buffering=0) as source:
            source.seek(start)
            left = file.stat().st_size - start if stop is None else stop - start
            while left and (block := source.read(min(left, _BLOCK_BYTES))):
                yield block
                left -= len(block)
        return
    reading, writing = os.pipe()
    # An early leave closes `packed`, so that the thread's next read fails: it may skip gigabytes before it writes.
    with ThreadPoolExecutor(1) as thread, open(reading, "rb") as pipe, open(file, "rb") as packed:
        unpacking = thread.submit(_unpack, packed, file, writing)
        while block := pipe.read(_BLOCK_BYTES):
            yield block
        unpacking.result()


def _unpack(packed: BinaryIO, file: Path, writing: int) -> None:
    with open(writing, "wb") as pipe:
        open_archive = unpacker(file)
        from py7zr.exceptions import ArchiveError, CrcError, PasswordRequired, UnsupportedCompressionMethodError

        factory = cast("WriterFactory", SimpleNamespace(create=lambda name: pipe))
        try:
            with open_archive(packed, blocksize=_BLOCK_BYTES) as archive:
                archive.extract(targets=[_checked_name(archive, file)], factory=factory)
        except (ArchiveError, PasswordRequired, MemoryError, *_DAMAGE) as error:
            what, fix = f"the archive is damaged ({type(error).__name__}: {one_line(error, 100)})", _FETCH_AGAIN
            match error:
                case PasswordRequired():
                    what, fix = "it wants a password", "unpack it yourself: no dump is encrypted"
                case CrcError():
                    what = "its checksum doesn't hold"
                case UnsupportedCompressionMethodError():
                    what, fix = f"it is compressed in a way py7zr can't read ({error})", "unpack it yourself"
            raise InputError(what, file, fix) from None


def unpacker(file: Path) -> "type[SevenZipFile]":
    """Return py7zr's reader of archives.

    Raises:
        RetryableError: py7zr isn't installed.
    """
    try:
        import py7zr
    except ImportError:
        fix = f"{install_hint('stackexchange')}, or unpack the archive"
        raise RetryableError("reading a .7z needs py7zr", file, fix) from None
    return py7zr.SevenZipFile


def _checked_name(archive: "SevenZipFile", file: Path) -> str:
    """Return the name of the one Posts.xml in an archive that is safe to unpack.

    Sizes are those that it declares: py7zr unpacks no more than those, 128 MB at a time.
    """
    names = [entry.filename for entry in archive.files if not entry.is_directory]
    odd = [name for name in names if PureWindowsPath(name).anchor or ".." in PureWindowsPath(name).parts]
    if odd:
        raise InputError(f"it has a file named {odd[0]!r}, outside its folder", file, "this is no dump: fetch it again")
    found = [name for name in names if PurePosixPath(name).name == POSTS]
    if len(found) != 1:
        shown = ", ".join(sorted(names)[:5]) or "nothing"
        raise InputError(f"it has {len(found) or 'no'} {POSTS}; it has {shown}", file, "give an archive that has one")
    unbounded = sorted(_UNBOUNDED_METHODS.intersection(archive.archiveinfo().method_names))
    if unbounded:
        what = f"it is compressed by {unbounded[0]}, which nothing keeps from filling the memory"
        raise InputError(what, file, "unpack it yourself")
    size, unpacked = file.stat().st_size, sum(entry.uncompressed for entry in archive.files)
    if unpacked > _MOST_EXPANSION * size:
        what = f"its {size:,} bytes would unpack to {unpacked:,}, more than {_MOST_EXPANSION} times as many"
        raise InputError(what, file, "if you trust it, unpack it yourself; else fetch it again")
    return found[0]
