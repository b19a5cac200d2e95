"""Reading of compressed files, whose format is detected from their first bytes."""

import bz2
import lzma
from collections.abc import Callable, Iterator

from pipeline_assets.corpus.formats import compression
from pipeline_assets.corpus.formats.compression import ZSTD, Codec
from pipeline_assets.spine.durable import name_file_in_errors
from pipeline_assets.spine.verified_reads import Readable

_READ_BYTES = 1 << 16
_XZ_MEMORY_BYTES = 1 << 27  # the window of `xz -9`, 64 MiB, and the decoder's state
Decompressor = bz2.BZ2Decompressor | lzma.LZMADecompressor


def _decompress_frames(file: Readable, new_decompressor: Callable[[], Decompressor]) -> Iterator[bytes]:
    """Decompress all frames in blocks of 0 to MAX_BLOCK_BYTES bytes."""
    decompressor = new_decompressor()
    is_open = True
    while compressed := file.read(_READ_BYTES):
        while compressed or not decompressor.needs_input:
            yield decompressor.decompress(compressed, compression.MAX_BLOCK_BYTES)
            is_open = not decompressor.eof
            compressed = b"" if is_open else decompressor.unused_data
            if not is_open:
                decompressor = new_decompressor()
    if is_open:
        raise compression.TruncatedError


GZIP = Codec("gzip", lambda file: compression.decompress_with_arrow(file, "gzip"))
BZIP2 = Codec("bzip2", lambda file: _decompress_frames(file, bz2.BZ2Decompressor))
XZ = Codec("xz", lambda file: _decompress_frames(file, lambda: lzma.LZMADecompressor(memlimit=_XZ_MEMORY_BYTES)))


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
