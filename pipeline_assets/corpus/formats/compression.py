"""Compressed streams, known by their first bytes and not by a file's name: zstd, gzip, bzip2, xz.

A stream may be several frames (members, streams) one after the other; nothing else may follow. The standard library's
file objects ignore what follows a bzip2 stream, and a cut zstd frame reads like a finished one: here both are errors.

Memory: a block, and the format's window, whatever a stream unpacks to. Four kilobytes of bzip2 can hold gigabytes.
"""

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.files import Readable

_READ_BYTES = 1 << 16
_STEP_BYTES = 1 << 18
_XZ_MEMORY_BYTES = 1 << 27  # a window of 64 MiB, as `xz -9` has it, and what works on it
_CUT = "Truncated"  # how pyarrow's error of a stream that ends within a frame begins


class _GzipFrame:
    """zlib's decompressor, which leaves its input with the caller, with the methods of those of bz2 and lzma."""

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(31)
        self.needs_input = True

    @property
    def eof(self) -> bool:
        return self._inflate.eof

    @property
    def unused_data(self) -> bytes:
        return self._inflate.unused_data

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        block = self._inflate.decompress(self._inflate.unconsumed_tail + data, max_length)
        self.needs_input = len(block) < max_length
        return block


class _CutOff(Exception):
    """The stream ends within a frame."""


def _framed(
    file: Readable, frame_of: Callable[[], _GzipFrame | bz2.BZ2Decompressor | lzma.LZMADecompressor]
) -> Iterator[bytes]:
    """Every frame, in blocks of at most `_STEP_BYTES`, empty ones among them."""
    frame = frame_of()
    is_open = True
    while compressed := file.read(_READ_BYTES):
        while compressed or not frame.needs_input:
            yield frame.decompress(compressed, _STEP_BYTES)
            is_open = not frame.eof
            compressed = b"" if is_open else frame.unused_data
            if not is_open:
                frame = frame_of()
    if is_open:
        raise _CutOff


def _zstd(file: Readable) -> Iterator[bytes]:
    """As `_framed`, by pyarrow: what else there is puts out all that it was given, 32,000 times as much at worst."""
    import pyarrow as pa

    source = _Source(file)
    stream = pa.CompressedInputStream(pa.PythonFile(source, "r"), "zstd")
    try:
        while block := stream.read(_STEP_BYTES):
            yield block
    except OSError as error:
        if error.errno is None and str(error).startswith(_CUT):
            raise _CutOff from None
        raise
    if source.is_empty:
        raise _CutOff


class _Source:
    """A file for pyarrow, which would close it."""

    closed = False

    def __init__(self, file: Readable) -> None:
        self._file = file
        self.is_empty = True

    def read(self, size: int) -> bytes:
        block = self._file.read(size)
        self.is_empty = self.is_empty and not block
        return block

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class Codec:
    """A compression format; `blocks` are what an open file says."""

    name: str
    blocks: Callable[[Readable], Iterator[bytes]]


ZSTD = Codec("zstd", _zstd)
GZIP = Codec("gzip", lambda file: _framed(file, _GzipFrame))
BZIP2 = Codec("bzip2", lambda file: _framed(file, bz2.BZ2Decompressor))
XZ = Codec("xz", lambda file: _framed(file, lambda: lzma.LZMADecompressor(memlimit=_XZ_MEMORY_BYTES)))


def codec_of(head: bytes) -> Codec | None:
    """The format of a file that begins with `head`, ten bytes or more where it has them; None where it is none."""
    if head[:4] == b"\x28\xb5\x2f\xfd" or (head[1:4] == b"\x2a\x4d\x18" and head[0] >> 4 == 5):  # or a skippable frame
        return ZSTD
    if head[:2] == b"\x1f\x8b":
        return GZIP
    if head[:3] == b"BZh" and head[4:10] in (b"1AY&SY", b"\x17\x72\x45\x38\x50\x90"):
        return BZIP2
    return XZ if head[:6] == b"\xfd7zXZ\0" else None


def decompressed(file: Readable, codec: Codec | None, where: object, fix: str, block_bytes: int) -> Iterator[bytes]:
    """Every frame of an open file, in blocks of at least `block_bytes`, and 256 KiB more at most; the last may be
    shorter. Without a codec the file as it is, in blocks of that size at most. Raises InputError: it is cut off or
    damaged, with `where` and `fix`. Blocks may have been yielded before that shows (a frame's checksum comes last):
    keep nothing that was made of them. A file of 0 bytes is cut off.
    """
    if codec is None:
        while block := file.read(block_bytes):
            yield block
        return
    pending: list[bytes] = []
    size = 0
    try:
        for block in codec.blocks(file):
            pending.append(block)
            size += len(block)
            if size >= block_bytes:
                yield b"".join(pending) if len(pending) > 1 else block
                pending, size = [], 0
    except _CutOff:
        raise InputError(f"the {codec.name} stream is cut off", where, fix) from None
    except (zlib.error, lzma.LZMAError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # of the disk, not of what was read
            raise
        raise InputError(f"the {codec.name} stream is damaged ({error})", where, fix) from None
    if size:
        yield b"".join(pending)
