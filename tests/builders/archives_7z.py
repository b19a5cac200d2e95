"""Sound and forged 7z archives."""

import io
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path

import py7zr
from py7zr.archiveinfo import write_uint64

_SIGNATURE_BYTES = 32


def archive(*members: tuple[str, bytes], **settings: object) -> bytes:
    """Build an archive of members; without a password, its header is plain."""
    packed = io.BytesIO()
    with py7zr.SevenZipFile(packed, "w", **settings) as writing:
        if "password" not in settings:
            writing.set_encoded_header_mode(False)
        for name, content in members:
            writing.writestr(content, name)
    return packed.getvalue()


def linked(target: str, name: str) -> bytes:
    """Return an archive whose member of a name is a symbolic link to a target."""
    packed = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder, py7zr.SevenZipFile(packed, "w") as writing:
        link = Path(folder, "link")
        link.symlink_to(target)
        writing.write(link, name)
    return packed.getvalue()


def renamed(packed: bytes, name: str, forged: str) -> bytes:
    """Rename a member to a name of equal length that py7zr refuses to write."""
    return _with_header(packed, lambda header: _replaced(header, name.encode("utf-16le"), forged.encode("utf-16le")))


def resized(packed: bytes, size: int, forged: int) -> bytes:
    """Forge the size of a member."""
    return _with_header(packed, lambda header: _replaced(header, _number(size), _number(forged)))


def stored(*members: tuple[str, bytes]) -> bytes:
    """Build an archive of uncompressed members; their bytes begin at 32."""
    return archive(*members, filters=[{"id": py7zr.FILTER_COPY}])


def _replaced(header: bytes, old: bytes, new: bytes) -> bytes:
    assert old in header
    return header.replace(old, new)


def _number(value: int) -> bytes:
    written = io.BytesIO()
    write_uint64(written, value)
    return written.getvalue()


def _with_header(packed: bytes, change: Callable[[bytes], bytes]) -> bytes:
    start = _SIGNATURE_BYTES + int.from_bytes(packed[12:20], "little")
    header = change(packed[start:])
    where = packed[12:20] + len(header).to_bytes(8, "little") + zlib.crc32(header).to_bytes(4, "little")
    return packed[:8] + zlib.crc32(where).to_bytes(4, "little") + where + packed[_SIGNATURE_BYTES:start] + header
