"""Decompression of files in blocks of bounded size.

A file consists of one or more frames (gzip members, bzip2 or xz streams). A truncated frame is an error, and so is
data that belongs to no frame, except zero bytes that the format allows: after the last gzip member, and in multiples of
four after an xz stream. The standard library's file objects ignore some of these errors.

`decompress` holds one block and the format's window in memory; `align_to_lines` holds one block and the longest line.
"""

import lzma
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.verified_reads import Readable

MAX_BLOCK_BYTES = 1 << 18
_ARROW_TRUNCATED = "Truncated"  # start of pyarrow's error for a stream that ends within a frame


class TruncatedError(Exception):
    """Error of a stream that ends within a frame."""


def _decompress_zstd(file: Readable) -> Iterator[bytes]:
    """Decompress all zstd frames with pyarrow, in blocks of bounded size.

    pyarrow bounds the output of each call; other zstd libraries return up to 32,000 times the input's size in one call.
    Raise TruncatedError if the input is empty or ends within a frame, and OSError if the input is damaged.
    """
    import pyarrow as pa

    source = _ArrowSource(file)
    stream = pa.CompressedInputStream(pa.PythonFile(source, "r"), "zstd")
    try:
        while block := stream.read(MAX_BLOCK_BYTES):
            yield block
    except OSError as error:
        if error.errno is None and str(error).startswith(_ARROW_TRUNCATED):
            raise TruncatedError from None
        raise
    if source.is_empty:
        raise TruncatedError


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


@dataclass(frozen=True)
class Codec:
    """Compression format, with the function that decompresses an open file in blocks."""

    name: str
    decompress_blocks: Callable[[Readable], Iterator[bytes]]


ZSTD = Codec("zstd", _decompress_zstd)


def decompress(file: Readable, codec: Codec, where: object, fix: str) -> Iterator[bytes]:
    """Decompress an open file in blocks of 0 to `MAX_BLOCK_BYTES` bytes.

    Raise InputError if the stream needs more than 128 MiB of memory, or if it is empty, truncated or damaged. The error
    names the file as `where`, and its advice is `fix`. After an error, discard all blocks: a frame's checksum is
    verified last.
    """
    try:
        yield from codec.decompress_blocks(file)
    except TruncatedError:
        raise InputError(f"the {codec.name} stream is truncated", where, fix) from None
    except (lzma.LZMAError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # an error of the disk, not of the data
            error.filename = error.filename or str(where)
            raise
        if "memory" in str(error).lower():  # zstd and xz refuse a window beyond their limit of memory
            fix = "decompress the file, such as by zstd -d --long=31 or xz -d, and read the result"
            raise InputError(f"the {codec.name} stream needs more than 128 MiB of memory", where, fix) from None
        if "dictionary mismatch" in str(error).lower():  # the id in the frame's header may also have a flipped bit
            what = f"the {codec.name} stream is damaged or needs its dictionary (zstd -d -D DICTIONARY reads it)"
            raise InputError(what, where, fix) from None
        raise InputError(f"the {codec.name} stream is damaged ({error})", where, fix) from None


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
