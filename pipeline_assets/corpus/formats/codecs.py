"""Reading of compressed files, whose format is detected from their first bytes."""

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import Protocol

from pipeline_assets.corpus.formats import compression
from pipeline_assets.corpus.formats.compression import ZSTD, Codec
from pipeline_assets.spine.durable import name_file_in_errors
from pipeline_assets.spine.verified_reads import Readable

_READ_BYTES = 1 << 16
_NO_FRAME = bytes(12)  # liblzma looks at a stream's first 12 bytes together
_XZ_MEMORY_BYTES = 1 << 27  # the window of `xz -9`, 64 MiB, and the decoder's state


class Decompressor(Protocol):
    """Decompressor of one frame with the interface of `bz2.BZ2Decompressor`."""

    @property
    def eof(self) -> bool: ...

    @property
    def needs_input(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, /, max_length: int) -> bytes: ...


class _GzipDecompressor:
    """Decompressor of one gzip member."""

    def __init__(self) -> None:
        self._inflater = zlib.decompressobj(wbits=31)  # 31: with the header and the checksums of gzip
        self.needs_input = True

    @property
    def eof(self) -> bool:
        return self._inflater.eof

    @property
    def unused_data(self) -> bytes:
        return self._inflater.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        try:
            block = self._inflater.decompress(self._inflater.unconsumed_tail + data, max_length)
        except zlib.error as error:
            # Rejects contain these words, which pyarrow's decompressor uses.
            raise OSError(f"zlib inflate failed: {str(error).partition(': ')[2]}") from None
        # zlib may hold more output than fits into a full block, even after it has read all of its input.
        self.needs_input = self.eof or (len(block) < max_length and not self._inflater.unconsumed_tail)
        return block


def _decompress_frames(
    file: Readable, new_decompressor: Callable[[], Decompressor], may_follow: Callable[[int, bytes], bool]
) -> Iterator[bytes]:
    """Decompress all frames in blocks of 0 to MAX_BLOCK_BYTES bytes.

    `may_follow` returns whether a number of zero bytes and then the start of a frame, which is empty at the end of the
    file, are allowed after a frame.
    """
    decompressor = new_decompressor()
    is_open, zeros = True, 0
    while compressed := file.read(_READ_BYTES):
        while compressed or not decompressor.needs_input:
            if not is_open:
                frame = compressed.lstrip(b"\0")
                zeros += len(compressed) - len(frame)
                if not frame:
                    break
                compressed = frame if may_follow(zeros, frame) else _NO_FRAME
            yield decompressor.decompress(compressed, compression.MAX_BLOCK_BYTES)
            is_open, zeros = not decompressor.eof, 0
            compressed = b"" if is_open else decompressor.unused_data
            if not is_open:
                decompressor = new_decompressor()
    if is_open:
        raise compression.TruncatedError
    if not may_follow(zeros, b""):
        decompressor.decompress(_NO_FRAME, 1)  # raises the format's error


def _may_follow_gzip(zeros: int, frame: bytes) -> bool:
    return zeros == 0 or not frame  # tapes append zeros to the last member


def _may_follow_bzip2(zeros: int, frame: bytes) -> bool:
    return zeros == 0


def _may_follow_xz(zeros: int, frame: bytes) -> bool:
    return zeros % 4 == 0 and frame[:1] in (b"", b"\xfd")  # stream padding: The .xz File Format, section 2.2


GZIP = Codec("gzip", lambda file: _decompress_frames(file, _GzipDecompressor, _may_follow_gzip))
BZIP2 = Codec("bzip2", lambda file: _decompress_frames(file, bz2.BZ2Decompressor, _may_follow_bzip2))
XZ = Codec("xz", lambda file: _decompress_frames(file, _new_xz_decompressor, _may_follow_xz))


def _new_xz_decompressor() -> Decompressor:
    return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY_BYTES)


def detect_codec(head: bytes) -> Codec | None:
    """Detect the format from a file's first ten bytes; None if they match no format."""
    is_skippable_frame = head[1:4] == b"\x2a\x4d\x18" and head[0] >> 4 == 5  # magic 0x184D2A5?, RFC 8878, 3.1.2
    if head[:4] == b"\x28\xb5\x2f\xfd" or is_skippable_frame:
        return ZSTD
    if head[:2] == b"\x1f\x8b":
        return GZIP
    if head[:3] == b"BZh" and head[4:10] in (b"1AY&SY", b"\x17\x72\x45\x38\x50\x90"):  # a block, or an empty stream
        return BZIP2
    return XZ if head[:6] == b"\xfd7zXZ\0" else None


def read_decompressed(
    file: Readable, codec: Codec | None, where: object, fix: str, block_bytes: int
) -> Iterator[bytes]:
    """Read an open file in decompressed blocks of about `block_bytes`.

    With a codec, a block has at least `block_bytes` and less than 256 KiB more; only the last block may be shorter.
    Without a codec, a block has at most `block_bytes`. Raise the same errors as `decompress`.
    """
    if codec is None:
        with name_file_in_errors(where):
            yield from iter(lambda: file.read(block_bytes), b"")
        return
    pending: list[bytes] = []
    size = 0
    for block in compression.decompress(file, codec, where, fix):
        pending.append(block)
        size += len(block)
        if size >= block_bytes:
            yield b"".join(pending) if len(pending) > 1 else block
            pending, size = [], 0
    if size:
        yield b"".join(pending)
