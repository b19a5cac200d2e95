"""Fuzzed arrays: Megatron indexes and headers of .npy files."""

import io
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from fuzz_edits import Reader

from pipeline_assets.corpus.formats.megatron import encode_index, read_indexed_dataset
from pipeline_assets.corpus.shards.token_shards import read_shard_header

_LENGTHS = ([2, 1, 3], [], [0, 0], [7] * 40)
_NUMBERS = [struct.pack("<q", number) for number in (-1, 0, 1, 1 << 31, 1 << 40, 1 << 62, (1 << 63) - 1)]
_HEADER = [b"(1, 2)", b"(-1, 4)", b"(1 << 60,)", b"'<i8'", b"'|O'", b"'<f9'", b"True", b"[('a', '<i4')]", b"(" * 200]
_HEADER += [b"__import__('os')", b"{'descr': '<u2'", b"99999999999999999999", b"\x93NUMPY", b"\x02\x00", b"None", b"()"]


def _indexes() -> list[bytes]:
    """Encode each index after the size of its tokens, which becomes the `.bin`."""
    return [
        struct.pack("<I", sum(lengths)) + b"".join(encode_index(np.array(lengths, np.int32))) for lengths in _LENGTHS
    ]


def _read_index(data: bytes, folder: Path) -> None:
    [tokens] = struct.unpack("<I", data[:4].ljust(4, b"\0"))
    (folder / "a.bin").write_bytes(bytes(4 * min(tokens, 1000)))
    (folder / "a.idx").write_bytes(data[4:])
    dataset = read_indexed_dataset(folder / "a")
    documents = len(dataset.document_index) - 1
    assert sum(len(dataset.document(number)) for number in range(documents)) == len(dataset.tokens)


def _arrays() -> list[bytes]:
    files = []
    for dtype in ("<u2", "<i4"):
        output = io.BytesIO()
        np.save(output, np.arange(12, dtype=dtype).reshape(3, 4))
        files.append(output.getvalue())
    return files


def _read_header(data: bytes, folder: Path) -> None:
    path = folder / "a.npy"
    path.write_bytes(data)
    dtype = np.dtype("<i4" if b"<i4" in data else "<u2")
    with path.open("rb") as file:
        header = read_shard_header(file, path, (3, 4), dtype)
    assert np.memmap(path, dtype, "r", header.offset, header.shape).shape == (3, 4)


READERS: Sequence[Reader] = (
    Reader("Megatron indexes", _indexes, _read_index, pieces=_NUMBERS),
    Reader(".npy headers", _arrays, _read_header, pieces=_HEADER),
)
