"""Compressed streams, known by their first bytes and not by a file's name: zstd, gzip, bzip2, xz; and JSON lines in
zstd, written whole with both hashes, read in blocks of whole lines.

A stream may be several frames (members, streams) one after the other; nothing else may follow. The standard library's
file objects ignore what follows a bzip2 stream, and a cut zstd frame reads like a finished one: here both are errors.

Memory: a block, and the format's window, whatever a stream unpacks to; of lines, the longest one. Four kilobytes of
bzip2 can hold gigabytes.
"""

import bz2
import hashlib
import lzma
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self, TypeVar

import msgspec
import zstandard

from pipeline_assets.corpus.spine.durable import DurableFile, naming_file
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.files import Readable, hashed
from pipeline_assets.corpus.spine.staging import OutputFile

_READ_BYTES = 1 << 16
_STEP_BYTES = 1 << 18
_XZ_MEMORY_BYTES = 1 << 27  # a window of 64 MiB, as `xz -9` has it, and what works on it
_CUT = "Truncated"  # how pyarrow's error of a stream that ends within a frame begins


class _CutOff(Exception):
    """The stream ends within a frame."""


def _framed(file: Readable, frame_of: Callable[[], bz2.BZ2Decompressor | lzma.LZMADecompressor]) -> Iterator[bytes]:
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


def _arrow(file: Readable, name: str) -> Iterator[bytes]:
    """As `_framed`, by pyarrow: what else there is for zstd puts out all that it was given, 32,000 times as much at
    worst.
    """
    import pyarrow as pa

    source = _Source(file)
    stream = pa.CompressedInputStream(pa.PythonFile(source, "r"), name)
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


ZSTD = Codec("zstd", lambda file: _arrow(file, "zstd"))
GZIP = Codec("gzip", lambda file: _arrow(file, "gzip"))
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
        with naming_file(where):
            yield from iter(lambda: file.read(block_bytes), b"")
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
    except (lzma.LZMAError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # of the disk, not of what was read
            error.filename = error.filename or str(where)
            raise
        raise InputError(f"the {codec.name} stream is damaged ({error})", where, fix) from None
    if size:
        yield b"".join(pending)


def whole_lines(
    blocks: Iterable[bytes], where: object, fix: str = "", max_line_bytes: int | None = None, block_bytes: int = 0
) -> Iterator[bytes]:
    """The same bytes in blocks of at least `block_bytes` that end at a line's end; a last line without one ends the
    last block, which may be shorter.

    Memory is that of one block, or of the longest line. Raises InputError: a line is longer than `max_line_bytes`; None
    is no limit.
    """
    pending: list[bytes] = []
    pending_bytes = line_bytes = 0
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


SUFFIX = ".jsonl.zst"
_BLOCK_BYTES = 1 << 20
T = TypeVar("T")
_FIX = "restore the file or rebuild the artifact"


class JsonlZstWriter:
    """Lines into one `.jsonl.zst`; the file is there, durable, when the block ends without error.

    The content hash is sha256 of the uncompressed bytes, so it survives another zstd version or level.
    """

    def __init__(self, path: Path, level: int) -> None:
        self._file = DurableFile(path)
        self._compressor = zstandard.ZstdCompressor(level=level, write_checksum=True)
        self._content = hashlib.sha256()
        self.rows = 0
        self.content_bytes = 0

    def __enter__(self) -> Self:
        self._file.__enter__()
        self._stream = self._compressor.compressobj()
        return self

    def write_lines(self, lines: bytes | bytearray, rows: int) -> None:
        """`rows` whole lines, each with its newline."""
        self._content.update(lines)
        self.content_bytes += len(lines)
        self.rows += rows
        compressed = self._stream.compress(lines)
        if compressed:
            self._file.write(compressed)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._file.write(self._stream.flush())
        except BaseException as failed:
            self._file.__exit__(type(failed), failed, failed.__traceback__)
            raise
        self._file.__exit__(kind, error, traceback)

    def output(self, name: str) -> OutputFile:
        """The finished file under its name in the building folder."""
        return OutputFile(name, self.rows, self._file.bytes_written, self._file.sha256, self._content.hexdigest())


class Compressor(Protocol):
    """Compressing stream with the methods of the standard library's."""

    def compress(self, data: bytes, /) -> bytes: ...

    def flush(self) -> bytes: ...


class _Plain:
    """Stream that does not compress."""

    def compress(self, data: bytes, /) -> bytes:
        return data

    def flush(self) -> bytes:
        return b""


_COMPRESSORS: dict[str, Callable[[], Compressor]] = {
    ".gz": lambda: zlib.compressobj(wbits=31),  # 31: with the header of gzip
    ".bz2": bz2.BZ2Compressor,
    ".xz": lzma.LZMACompressor,
    ".zst": lambda: zstandard.ZstdCompressor().compressobj(),
}


def compressor_for(name: str) -> Compressor:
    """Return the compressor for a file name's ending; other endings do not compress."""
    return _COMPRESSORS.get(Path(name).suffix.lower(), _Plain)()


def plain_stem(name: str) -> str:
    """Return a file name without folder, format ending and compression ending."""
    path = Path(name)
    return path.with_suffix("").stem if path.suffix.lower() in _COMPRESSORS else path.stem


def write_rows(path: Path, name: str, rows: list[dict[str, object]], level: int) -> OutputFile:
    """Write a few rows as `.jsonl.zst`, in input order."""
    with JsonlZstWriter(path, level) as writer:
        writer.write_lines(b"".join(msgspec.json.encode(row) + b"\n" for row in rows), len(rows))
    return writer.output(name)


def read_line_blocks(path: Path, block_bytes: int = _BLOCK_BYTES) -> Iterator[bytes]:
    """Uncompressed bytes in blocks of at least `block_bytes` that end at a line's end; no lines give no block.

    Raises:
        InputError: the file is cut off or damaged. Blocks may have been yielded before that shows (a frame's checksum
            comes last): keep nothing that was made of them. A file of 0 bytes is cut off, since a zstd file of no lines
            has a frame too.
    """
    with open(path, "rb", buffering=0) as file:
        yield from whole_lines(decompressed(hashed(file, path), ZSTD, path, _FIX, 1), path, block_bytes=block_bytes)


def read_structs(path: Path, decoder: msgspec.json.Decoder[T]) -> Iterator[T]:
    """What each line says, in order; a block of them is in memory at a time.

    Raises:
        InputError: as `read_line_blocks`.
        msgspec.DecodeError: a line is not of the decoder's type.
    """
    for block in read_line_blocks(path):
        yield from decoder.decode_lines(block)
