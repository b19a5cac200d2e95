"""Packed sets: rows of one length as an array on disk, with what tells where each token is from.

input_ids.mmap        int32, little-endian, shape (n_seqs, seq_len), row after row, nothing else
meta.json             shape, tokenizer, ids of end and padding, counts; a label: it has a time and a path in it
index.jsonl.zst       a line a row: its segments, `[{"doc_id", "source", "start", "length"}]`, one after the other
                      from the row's first token on; `start` is the first token in the document, whose end is its
                      last token; what is behind the last segment is padding
documents.parquet     a line for each drawn document: see `packing.rows`
boundaries.npy        where the recipe asks: int32 (segments, 2), first token in the row and tokens of each segment
boundary_offsets.npy  int64 (n_seqs + 1,): the first segment of each row
"""

import functools
import hashlib
import io
import math
import mmap
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, Literal

import msgspec
import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from pipeline_assets.corpus.formats.compression import ZSTD, decompressed
from pipeline_assets.spine.durable import DurableFile
from pipeline_assets.spine.errors import InputError, RetryableError
from pipeline_assets.spine.manifest import FILE_NAME, Manifest
from pipeline_assets.spine.pinned_folder import PinnedFolder, pin_folder

INPUT_IDS, META, INDEX, DOCUMENTS = "input_ids.mmap", "meta.json", "index.jsonl.zst", "documents.parquet"
BOUNDARIES, BOUNDARY_OFFSETS = "boundaries.npy", "boundary_offsets.npy"
DTYPE = np.dtype("<i4")
PADDING = -1
_FIX = "restore the file or rebuild the set"
_AGAIN = "open the set again"


class Segment(msgspec.Struct, frozen=True):
    """`length` tokens of a document from `start` on."""

    doc_id: str
    source: str
    start: int
    length: int


class Frame(msgspec.Struct, frozen=True):
    """Where in the index, in bytes, the line of a row begins, and with it a zstd frame."""

    row: int
    offset: int


class Meta(msgspec.Struct, frozen=True, kw_only=True):
    """What meta.json says.

    Attributes:
        tokens: of documents, with their ends; the rest of n_seqs × seq_len is padding.
        counts: as the manifest has them: the ledger, and what each source gave; empty in a set that says none.
        index_frames: so that a row's line is found without reading those before.
    """

    seq_len: int
    n_seqs: int
    dtype: str
    tokenizer_family: str
    tokenizer_sha256: str
    tokenizer_path: str
    vocabulary_size: int
    eod_id: int
    pad_id: int
    strategy: str
    documents: int
    tokens: int
    padding_tokens: int
    counts: dict[str, Any] = {}
    created_at: str
    index_frames: list[Frame]

    def to_bytes(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n"


@dataclass(frozen=True)
class PackedSet:
    """A packed set, open: `packed[row]` are its tokens, a view of the file of shape (seq_len,).

    It stays the set that it was opened on: all files were opened with it, and outlive another set that takes its place.
    Pickled, as for a worker of a loader, it is its folder and digest; there, the folder is opened again, and refused
    where it holds another set by then.

    Attributes:
        digest: of its manifest; of meta.json where it has none.
        index: the bytes of the index; None where there is none.
        stored_boundaries: the arrays, where they are: (segments, 2), and the first segment of each row.
    """

    folder: Path
    digest: str
    meta: Meta
    input_ids: NDArray[np.int32]
    index: bytes | mmap.mmap | None
    stored_boundaries: tuple[NDArray[np.int32], NDArray[np.int64]] | None

    def __reduce__(self) -> tuple[Callable[[Path, str], "PackedSet"], tuple[Path, str]]:
        return open_packed, (self.folder, self.digest)

    def __len__(self) -> int:
        return self.meta.n_seqs

    def __getitem__(self, row: int) -> NDArray[np.int32]:
        tokens: NDArray[np.int32] = self.input_ids[row]
        return tokens

    def segments(self, row: int) -> list[Segment]:
        """The documents in a row, in their order; reads the part of the index that the row is in. Raises InputError:
        the index is damaged or not there, or has no such row.
        """
        row = range(len(self))[row]
        number = int(np.searchsorted(self._frame_rows, row, side="right")) - 1
        lines, place = self._frame_lines(number), row - self.meta.index_frames[number].row
        if place >= len(lines):
            raise InputError(f"it has no line for row {row:,}", self.folder / INDEX, _FIX)
        return _segments_decoder.decode(lines[place])

    def rows_with(self, doc_id: str) -> Iterator[int]:
        """The rows that have a segment of a document with this id, ascending; reads the whole index, a frame at a time.
        Raises InputError: the index is damaged or not there.
        """
        wanted = b'"doc_id":' + msgspec.json.encode(doc_id)
        for number, frame in enumerate(self.meta.index_frames):
            yield from (frame.row + place for place, line in enumerate(self._frame_lines(number)) if wanted in line)

    def index_frames(self) -> Iterator[list[bytes]]:
        """Yield the lines of the whole index, frame by frame. Raises InputError if it is damaged or missing."""
        return map(self._frame_lines, range(len(self.meta.index_frames)))

    def boundaries(self, row: int) -> NDArray[np.int32]:
        """First token in the row and length of each segment, shape (segments, 2); from the arrays where they are."""
        if self.stored_boundaries is None:
            lengths = np.array([segment.length for segment in self.segments(row)], np.int32)
            return np.stack([np.cumsum(lengths, dtype=np.int32) - lengths, lengths], axis=1)
        boundaries, offsets = self.stored_boundaries
        row = range(len(self))[row]
        return boundaries[offsets[row] : offsets[row + 1]]

    def document_numbers(self, row: int) -> NDArray[np.int32]:
        """Of each token of a row the number of its segment there, shape (seq_len,); -1 is padding. Tokens may attend to
        those of their own number.
        """
        numbers = np.full(self.meta.seq_len, PADDING, np.int32)
        lengths = self.boundaries(row)[:, 1]
        numbers[: lengths.sum()] = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
        return numbers

    @cached_property
    def _frame_lines(self) -> Callable[[int], list[bytes]]:
        """The lines of a frame by its number; keeps those of the last."""
        where, frames = self.folder / INDEX, self.meta.index_frames
        return functools.lru_cache(maxsize=1)(functools.partial(_lines, self.index, where, frames))

    @cached_property
    def _frame_rows(self) -> NDArray[np.int64]:
        return np.array([frame.row for frame in self.meta.index_frames], np.int64)


def open_packed(folder: Path | str, digest: str | None = None) -> PackedSet:
    """The packed set in a folder, of this digest if one is expected; sizes are checked, and with the manifest those of
    all files. Raises InputError: a file is missing or has another size, or meta.json says nothing of the kind;
    RetryableError: another set than is expected, or one that took the folder's place while this one was opened.
    """
    folder = Path(folder)
    try:
        with pin_folder(folder, _AGAIN) as opened:
            return _packed_set(opened, digest)
    except (FileNotFoundError, NotADirectoryError):
        raise InputError("there is no such folder", folder, "give the folder of a packed set") from None


def _packed_set(opened: PinnedFolder, digest: str | None) -> PackedSet:
    folder = opened.path
    sealed = sealed_in(opened) if opened.size(FILE_NAME) is not None else None
    for name in (META, INPUT_IDS):
        if opened.size(name) is None:
            raise InputError("there is no such file", folder / name, "give the folder of a packed set")
    with opened.open(META) as file:
        described = file.read()
    found = sealed.digest if sealed is not None else f"sha256:{hashlib.sha256(described).hexdigest()}"
    if digest is not None and found != digest:
        raise RetryableError("it was replaced since the set was opened", folder, _AGAIN)
    try:
        meta = _meta_decoder.decode(described)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"this doesn't describe a packed set ({error})", folder / META, _FIX) from None
    with opened.open(INPUT_IDS) as file:
        size, expected = os.fstat(file.fileno()).st_size, meta.n_seqs * meta.seq_len * DTYPE.itemsize
        if meta.dtype != DTYPE.name or size != expected:
            what = f"it has {size:,} bytes, {meta.n_seqs:,} rows of {meta.seq_len:,} {meta.dtype} take {expected:,}"
            raise InputError(what, folder / INPUT_IDS, _FIX)
        input_ids = np.memmap(file, DTYPE, "r", shape=(meta.n_seqs, meta.seq_len))
    has_boundaries = opened.size(BOUNDARIES) is not None
    boundaries = (_array(opened, BOUNDARIES), _array(opened, BOUNDARY_OFFSETS)) if has_boundaries else None
    return PackedSet(folder, found, meta, input_ids, _index(opened), boundaries)


def sealed_in(opened: PinnedFolder) -> Manifest:
    """The manifest of a folder, which has one. Raises InputError where a file that it names is missing, or has another
    size.
    """
    with opened.open(FILE_NAME) as file:
        manifest = Manifest.from_bytes(file.read(), opened.path / FILE_NAME)
    for stored in manifest.storage:
        size = opened.size(stored.path)
        if size != stored.bytes:
            what = "the file is missing" if size is None else f"has {size:,} bytes, sealed with {stored.bytes:,}"
            raise InputError(what, opened.path / stored.path, _FIX)
    return manifest


def _index(opened: PinnedFolder) -> bytes | mmap.mmap | None:
    size = opened.size(INDEX)
    if not size:  # no bytes can't be mapped
        return None if size is None else b""
    with opened.open(INDEX) as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def write_npy_header(file: DurableFile, kind: str, shape: tuple[int, ...]) -> None:
    """What an .npy file begins with, format 1.0; its values follow row after row. `kind` is as NumPy writes dtypes."""
    npy.write_array_header_1_0(file, {"descr": kind, "fortran_order": False, "shape": shape})


@dataclass(frozen=True)
class NpyHeader:
    """What an .npy file says of its values, and where they begin."""

    shape: tuple[int, ...]
    order: Literal["C", "F"]
    dtype: np.dtype[Any]
    offset: int

    @property
    def file_bytes(self) -> int:
        """Of the whole file."""
        return self.offset + math.prod(self.shape) * self.dtype.itemsize


def read_npy_header(file: BinaryIO, where: Path) -> NpyHeader:
    """The header of an .npy file of format 1.0, at its beginning. Raises InputError where there is none."""
    try:
        npy.read_magic(file)
        shape, is_fortran, dtype = npy.read_array_header_1_0(file)
    except ValueError as error:
        raise InputError(f"this is no array ({error})", where, _FIX) from None
    return NpyHeader(shape, "F" if is_fortran else "C", dtype, file.tell())


def _array(opened: PinnedFolder, name: str) -> NDArray[Any]:
    """A view of an .npy file; `np.load` would open it by its path."""
    with opened.open(name) as file:
        header = read_npy_header(file, opened.path / name)
        try:
            return np.memmap(file, header.dtype, "r", header.offset, header.shape, header.order)
        except ValueError as error:
            raise InputError(f"this is no array ({error})", opened.path / name, _FIX) from None


_meta_decoder = msgspec.json.Decoder(Meta)
_segments_decoder = msgspec.json.Decoder(list[Segment])


def _lines(index: bytes | mmap.mmap | None, where: Path, frames: Sequence[Frame], number: int) -> list[bytes]:
    """The lines of one frame. Raises InputError: the index is damaged, or there is none."""
    if index is None:
        raise InputError("there is no such file", where, _FIX)
    stop = frames[number + 1].offset if number + 1 < len(frames) else None
    frame = io.BytesIO(index[frames[number].offset : stop])
    return b"".join(decompressed(frame, ZSTD, where, _FIX, 1 << 20)).splitlines()
