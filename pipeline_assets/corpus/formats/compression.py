"""Decompression of files in blocks of bounded size.

A file consists of one or more frames (gzip members, bzip2 or xz streams). A truncated frame is an error, and so is
other data after a frame. The standard library's file objects ignore some of these errors.

`decompress` keeps one block and the format's window in memory, `align_to_lines` one block and the longest line.
"""

import bz2
import lzma
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from pipeline_assets.spine.durable import name_file_in_errors
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.verified_reads import Readable

MAX_BLOCK_BYTES = 1 << 18
_READ_BYTES = 1 << 16
_XZ_MEMORY_BYTES = 1 << 27  # the window of `xz -9`, 64 MiB, and the decoder's state
_ARROW_TRUNCATED = "Truncated"  # start of pyarrow's error for a stream that ends within a frame


class _TruncatedError(Exception):
    """Error of a stream that ends within a frame."""


def _decompress_with_arrow(file: Readable, codec_name: str) -> Iterator[bytes]:
    """Decompress all frames with a codec of pyarrow, in blocks of bounded size.

    pyarrow bounds the output of each call; other zstd libraries return up to 32,000 times the input's size in one call.
    Raise _TruncatedError if the input is empty or ends within a frame, and OSError if the input is damaged.
    """
    import pyarrow as pa

    source = _ArrowSource(file)
    stream = pa.CompressedInputStream(pa.PythonFile(source, "r"), codec_name)
    try:
        while block := stream.read(MAX_BLOCK_BYTES):
            yield block
    except OSError as error:
        if error.errno is None and str(error).startswith(_ARROW_TRUNCATED):
            raise _TruncatedError from None
        raise
    if source.is_empty:
        raise _TruncatedError


class _ArrowSource:
    """File object for pyarrow; closing this object leaves the wrapped file open."""

    closed = False

    def __init__(self, file: Readable) -> None:
        self._file = file
        self.is_empty = True

    def read(self, size: int) -> bytes:
        block = self._file.read(size)
        self.is_empty = self.is_empty and not block
        return block

    def close(self) -> None:
        pass


def _decompress_frames(
    file: Readable, new_decompressor: Callable[[], bz2.BZ2Decompressor | lzma.LZMADecompressor]
) -> Iterator[bytes]:
    """Decompress all frames in blocks of 0 to MAX_BLOCK_BYTES bytes."""
    decompressor = new_decompressor()
    is_open = True
    while compressed := file.read(_READ_BYTES):
        while compressed or not decompressor.needs_input:
            yield decompressor.decompress(compressed, MAX_BLOCK_BYTES)
            is_open = not decompressor.eof
            compressed = b"" if is_open else decompressor.unused_data
            if not is_open:
                decompressor = new_decompressor()
    if is_open:
        raise _TruncatedError


@dataclass(frozen=True)
class Codec:
    """Compression format, with the function that decompresses an open file in blocks."""

    name: str
    decompress_blocks: Callable[[Readable], Iterator[bytes]]


ZSTD = Codec("zstd", lambda file: _decompress_with_arrow(file, "zstd"))
GZIP = Codec("gzip", lambda file: _decompress_with_arrow(file, "gzip"))
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


def decompress(file: Readable, codec: Codec, where: object, fix: str) -> Iterator[bytes]:
    """Decompress an open file in blocks of 0 to `MAX_BLOCK_BYTES` bytes.

    Raise InputError for the file `where` if the stream needs more than 128 MiB of memory, or if it is empty, truncated
    or damaged (`fix` is the advice). After an error, discard all blocks: a frame's checksum is verified last.
    """
    try:
        yield from codec.decompress_blocks(file)
    except _TruncatedError:
        raise InputError(f"the {codec.name} stream is truncated", where, fix) from None
    except (lzma.LZMAError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # an error of the disk, not of the data
            error.filename = error.filename or str(where)
            raise
        if "memory" in str(error).lower():  # zstd and xz refuse a window beyond their limit of memory
            fix = "decompress the file, such as by zstd -d --long=31 or xz -d, and read the result"
            raise InputError(f"the {codec.name} stream needs more than 128 MiB of memory", where, fix) from None
        raise InputError(f"the {codec.name} stream is damaged ({error})", where, fix) from None


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
    for block in decompress(file, codec, where, fix):
        pending.append(block)
        size += len(block)
        if size >= block_bytes:
            yield b"".join(pending) if len(pending) > 1 else block
            pending, size = [], 0
    if size:
        yield b"".join(pending)


def align_to_lines(
    blocks: Iterable[bytes], where: object, fix: str = "", max_line_bytes: int | None = None, block_bytes: int = 0
) -> Iterator[bytes]:
    """Regroup blocks into blocks of at least `block_bytes` that end with a line feed.

    The last block may lack a line feed. Raise InputError if an unfinished line grows longer than `max_line_bytes`.
    """
    pending: list[bytes] = []
    pending_bytes = line_bytes = 0  # line_bytes: bytes after the last line feed
    for block in blocks:
        end = block.rfind(b"\n") + 1
        line_bytes = len(block) - end if end else line_bytes + len(block)
        if end and pending_bytes + end >= block_bytes:
            yield b"".join([*pending, memoryview(block)[:end]])
            pending, pending_bytes = [], 0
            block = block[end:]
        if block:
            pending.append(block)
            pending_bytes += len(block)
        if max_line_bytes is not None and line_bytes > max_line_bytes:
            raise InputError(f"a line is longer than {max_line_bytes >> 20} MiB", where, fix)
    if pending:
        yield b"".join(pending)
