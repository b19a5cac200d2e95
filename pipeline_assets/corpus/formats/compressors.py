"""Compressors for output files, chosen by the ending of the file name."""

import bz2
import lzma
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import zstandard


class Compressor(Protocol):
    """Compressor with the methods of the standard library's compressor objects."""

    def compress(self, data: bytes, /) -> bytes: ...

    def flush(self) -> bytes: ...


class _NoCompression:
    def compress(self, data: bytes, /) -> bytes:
        return data

    def flush(self) -> bytes:
        return b""


_COMPRESSORS: dict[str, Callable[[], Compressor]] = {
    ".gz": lambda: zlib.compressobj(wbits=31),  # 31: with the header of gzip
    ".bz2": bz2.BZ2Compressor,
    ".xz": lzma.LZMACompressor,
    **dict.fromkeys((".zst", ".zstd"), lambda: zstandard.ZstdCompressor(write_checksum=True).compressobj()),
}


def compressor_for(file_name: str) -> Compressor:
    """Return the compressor for a file name; an unknown ending means no compression."""
    return _COMPRESSORS.get(Path(file_name).suffix.lower(), _NoCompression)()


def plain_stem(file_name: str) -> str:
    """Return a file name without folder, format ending and compression ending."""
    path = Path(file_name)
    return path.with_suffix("").stem if path.suffix.lower() in _COMPRESSORS else path.stem
