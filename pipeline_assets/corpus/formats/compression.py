"""Compressed streams, known by their first bytes and not by a file's name: zstd, gzip, bzip2, xz.

A stream may be several frames (members, streams) one after the other; nothing else may follow. The standard library's
file objects ignore what follows a bzip2 stream, and a cut zstd frame reads like a finished one: here both are errors.
"""

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import zstandard

from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.reads import Readable

_READ_BYTES = 1 << 16


class _Decompressor(Protocol):
    """One frame."""

    @property
    def eof(self) -> bool:
        """Whether the frame has ended."""

    @property
    def unused_data(self) -> bytes:
        """What was given after its end."""

    def decompress(self, data: bytes, /) -> bytes:
        """What the next bytes of the frame say."""


@dataclass(frozen=True)
class Codec:
    """A compression format; `frame` starts decompressing a frame."""

    name: str
    frame: Callable[[], _Decompressor]


ZSTD = Codec("zstd", lambda: zstandard.ZstdDecompressor().decompressobj())
GZIP = Codec("gzip", lambda: zlib.decompressobj(31))
BZIP2 = Codec("bzip2", bz2.BZ2Decompressor)
XZ = Codec("xz", lzma.LZMADecompressor)
_FAULTS = (zstandard.ZstdError, zlib.error, lzma.LZMAError, OSError)


def codec_of(head: bytes) -> Codec | None:
    """The format of a file that begins with `head`, ten bytes or more where it has them; None where it is none."""
    if head[:4] == b"\x28\xb5\x2f\xfd" or (head[1:4] == b"\x2a\x4d\x18" and head[0] >> 4 == 5):  # or a skippable frame
        return ZSTD
    if head[:2] == b"\x1f\x8b":
        return GZIP
    if head[:3] == b"BZh" and head[4:10] in (b"1AY&SY", b"\x17\x72\x45\x38\x50\x90"):
        return BZIP2
    return XZ if head[:6] == b"\xfd7zXZ\0" else None


def decompressed(file: Readable, codec: Codec, where: object, fix: str, block_bytes: int) -> Iterator[bytes]:
    """Every frame of an open file, in blocks of at least `block_bytes`; the last may be shorter.

    Raises:
        InputError: it is cut off or damaged, with `where` and `fix`. Blocks may have been yielded before that shows (a
            frame's checksum comes last): keep nothing that was made of them. A file of 0 bytes is cut off.
    """
    frame = codec.frame()
    pending: list[bytes] = []
    size = 0
    is_frame_open = True
    while compressed := file.read(_READ_BYTES):
        while compressed:
            try:
                block = frame.decompress(compressed)
            except _FAULTS as error:
                raise InputError(f"the {codec.name} stream is damaged ({error})", where, fix) from None
            is_frame_open = not frame.eof
            compressed = frame.unused_data if frame.eof else b""
            if frame.eof:
                frame = codec.frame()
            pending.append(block)
            size += len(block)
        if size >= block_bytes:
            yield b"".join(pending)
            pending, size = [], 0
    if is_frame_open:
        raise InputError(f"the {codec.name} stream is cut off", where, fix)
    if pending:
        yield b"".join(pending)
