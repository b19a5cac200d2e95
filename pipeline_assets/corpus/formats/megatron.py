r"""Megatron's indexed datasets, written with one sequence per document.

The `.bin` has the token ids of all documents, the `.idx` their lengths and positions. Layout of `.idx`, little-endian,
no padding (megatron-core 0.16, `core/datasets/indexed_dataset.py`):

    magic "MMIDIDX\0\0" 9 bytes · version u64 = 1 · dtype code u8 · S sequences u64 · D = documents + 1 u64
    · lengths int32[S] · pointers int64[S], bytes into .bin · document index int64[D], 0 … S

With a sequence per document the `.idx` has 42 + 20·S bytes. Example: 3 documents of 2, 1 and 3 int32 tokens have the
lengths 2 1 3, pointers 0 8 12, document index 0 1 2 3, and a `.bin` of 24 bytes.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.spine.errors import InputError

MAGIC = b"MMIDIDX\x00\x00"
VERSION = 1
INT32_CODE = 4
_DTYPES = {1: np.uint8, 2: np.int8, 3: np.int16, 4: np.int32, 5: np.int64, 6: np.float64, 7: np.float32, 8: np.uint16}
_HEADER = struct.Struct("<9sQBQQ")
_BLOCK_DOCUMENTS = 1 << 16
_FIX = "choose the prefix of a .bin/.idx pair"


def encode_index(lengths: NDArray[np.int32]) -> Iterator[bytes]:
    """Yield an `.idx` in blocks; `lengths` has each document's number of int32 tokens."""
    sequences = len(lengths)
    yield _HEADER.pack(MAGIC, VERSION, INT32_CODE, sequences, sequences + 1)
    blocks = [lengths[first : first + _BLOCK_DOCUMENTS] for first in range(0, sequences, _BLOCK_DOCUMENTS)]
    for block in blocks:
        yield block.astype("<i4").tobytes()
    end = 0  # bytes of `.bin` before the block
    for block in blocks:
        ends = end + 4 * np.cumsum(block, dtype=np.int64)
        yield (ends - 4 * block.astype(np.int64)).astype("<i8").tobytes()
        end = int(ends[-1])
    for first in range(0, sequences + 1, _BLOCK_DOCUMENTS):
        yield np.arange(first, min(first + _BLOCK_DOCUMENTS, sequences + 1), dtype="<i8").tobytes()


@dataclass(frozen=True)
class IndexedDataset:
    """Indexed dataset whose tokens are memory-mapped."""

    lengths: NDArray[np.int32]  # number of tokens of each sequence, shape (S,)
    pointers: NDArray[np.int64]  # byte offset of each sequence in `.bin`, shape (S,)
    document_index: NDArray[np.int64]  # first sequence of each document, then S; shape (documents + 1,)
    tokens: NDArray[Any]

    def document(self, document_number: int) -> NDArray[Any]:
        """Return the tokens of one document, shape (tokens,)."""
        first, last = self.document_index[document_number], self.document_index[document_number + 1]
        if first == last:
            return self.tokens[:0]
        start = int(self.pointers[first]) // self.tokens.itemsize
        return self.tokens[start : start + int(self.lengths[first:last].sum())]


def read_indexed_dataset(prefix: Path) -> IndexedDataset:
    """Open `<prefix>.idx` and `<prefix>.bin`; raise InputError if they are invalid."""
    index_path, tokens_path = prefix.with_name(prefix.name + ".idx"), prefix.with_name(prefix.name + ".bin")
    try:
        data, token_bytes = index_path.read_bytes(), tokens_path.stat().st_size
    except FileNotFoundError as error:
        raise InputError("file not found", error.filename, _FIX) from None
    if len(data) < _HEADER.size or not data.startswith(MAGIC):
        raise InputError("not a Megatron index", index_path, _FIX)
    _, version, code, sequences, documents = _HEADER.unpack_from(data)
    if version != VERSION or code not in _DTYPES or len(data) < _HEADER.size + 12 * sequences + 8 * documents:
        what = f"unsupported or truncated index: version {version}, dtype code {code}, {len(data)} bytes"
        raise InputError(what, index_path, "rebuild the pair")
    start = _HEADER.size
    lengths = np.frombuffer(data, "<i4", sequences, start)
    pointers = np.frombuffer(data, "<i8", sequences, start + 4 * sequences)
    document_index = np.frombuffer(data, "<i8", documents, start + 12 * sequences)
    dtype = np.dtype(_DTYPES[code])
    ends = np.cumsum(lengths, dtype=np.int64) * dtype.itemsize  # bytes of `.bin` up to the end of each sequence
    is_consistent = (  # sequences follow one another in `.bin`, and all belong to documents
        token_bytes == (ends[-1] if len(ends) else 0)
        and (lengths >= 0).all()
        and (pointers == ends - lengths.astype(np.int64) * dtype.itemsize).all()
        and document_index[:1].tolist() == [0]
        and document_index[-1] == len(lengths)
        and (np.diff(document_index) >= 0).all()
    )
    if not is_consistent:
        raise InputError("lengths and pointers do not match the tokens", index_path, "rebuild the pair")
    tokens = np.memmap(tokens_path, dtype, "r") if token_bytes else np.empty(0, dtype)
    return IndexedDataset(lengths, pointers, document_index, tokens)
