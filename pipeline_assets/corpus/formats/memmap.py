"""Packed sets: rows of equal length in one array, with an index of their segments.

A segment is a run of consecutive tokens of one document in a row.

input_ids.mmap        tokens: int32, little-endian, shape (n_seqs, seq_len), no header
meta.json             shape, tokenizer, ids of end of document and padding, counts; not part of the digest, because it
                      has a time and a path
index.jsonl.zst       a line per row with its segments in order, `[{"doc_id", "source", "start", "length"}]`; `start`
                      is a position in the document's tokens, which end with the end-of-document token; padding follows
                      the segments
documents.parquet     a row per draw of a document, see `packing.drawn_documents`
boundaries.npy        optional: int32 (segments, 2), first token in the row and length of each segment
boundary_offsets.npy  optional: int64 (n_seqs + 1,), first segment of each row, then the number of all segments
"""

import bisect
import functools
import hashlib
import io
import mmap
import operator
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.formats.compression import ZSTD, decompress
from pipeline_assets.corpus.formats.npy_header import read_npy_header
from pipeline_assets.spine.errors import InputError, RetryableError
from pipeline_assets.spine.files import require_folder
from pipeline_assets.spine.manifest import MANIFEST_FILE, Manifest
from pipeline_assets.spine.replacement import PinnedFolder, pin_folder, replaced_error

INPUT_IDS_FILE, META_FILE, INDEX_FILE, DOCUMENTS_FILE = (
    "input_ids.mmap",
    "meta.json",
    "index.jsonl.zst",
    "documents.parquet",
)
BOUNDARIES_FILE, BOUNDARY_OFFSETS_FILE = "boundaries.npy", "boundary_offsets.npy"
TOKEN_DTYPE = np.dtype("<i4")
PADDING_DOCUMENT = -1
_FIX = "restore the file or rebuild the set"
_FOLDER_FIX = "choose the folder of a packed set (stage_a/packed), such as data/stage_a/NAME/packed/NAME"
_RETRY_HINT = "open the set again"


class Segment(msgspec.Struct, frozen=True):
    """Segment of a row: tokens [start, start + length) of a document."""

    doc_id: str
    source: str
    start: int
    length: int


class Frame(msgspec.Struct, frozen=True):
    """Frame of the zstd index, with the number of its first row and its byte offset."""

    row: int
    offset: int


class PackedSetMeta(msgspec.Struct, frozen=True, kw_only=True):
    """Content of meta.json."""

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
    documents: int  # number of draws; one document may be drawn several times
    tokens: int  # including end-of-document tokens, but not padding
    padding_tokens: int
    counts: dict[str, Any] = {}  # of the manifest; may be empty
    created_at: str
    index_frames: list[Frame]  # to find a row's line without reading earlier lines

    def to_bytes(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n"


@dataclass(frozen=True, eq=False)  # equality of arrays has no single answer
class PackedSet:
    """Open packed set; `packed[row]` is a view of the row's tokens, shape (seq_len,).

    All files remain readable if another set replaces the folder. Unpickling, such as in a worker of a loader, reopens
    the folder, and raises RetryableError if the folder's digest differs. `stored_boundaries` has the arrays of
    boundaries.npy and boundary_offsets.npy; None if not stored.
    """

    folder: Path
    digest: str  # of the manifest, or of meta.json if the folder has no manifest
    meta: PackedSetMeta
    input_ids: NDArray[np.int32]
    index: bytes | mmap.mmap | None  # bytes of index.jsonl.zst; None if the file is missing
    stored_boundaries: tuple[NDArray[np.int32], NDArray[np.int64]] | None

    def __reduce__(self) -> tuple[Callable[[Path, str], "PackedSet"], tuple[Path, str]]:
        return open_packed, (self.folder, self.digest)

    def __len__(self) -> int:
        return self.meta.n_seqs

    def __getitem__(self, row: int) -> NDArray[np.int32]:
        tokens: NDArray[np.int32] = self.input_ids[operator.index(row)]
        return tokens

    def segments(self, row: int) -> list[Segment]:
        """Read the segments of a row, in order; InputError if the index is damaged."""
        row = resolve_row(row, len(self))
        frames = self.meta.index_frames
        number = bisect.bisect_right(frames, row, key=lambda frame: frame.row) - 1
        lines, place = list[bytes](), 0
        if number >= 0:
            lines, place = self._read_frame_lines(number), row - frames[number].row
        if place >= len(lines):
            raise InputError(f"the index has no line for row {row:,}", self.folder / INDEX_FILE, _FIX)
        try:
            return _segments_decoder.decode(lines[place])
        except msgspec.DecodeError as error:
            raise InputError(f"the line of row {row:,} is damaged: {error}", self.folder / INDEX_FILE, _FIX) from None

    def rows_with_document(self, doc_id: str) -> Iterator[int]:
        """Yield the numbers of all rows with a segment of a document, ascending."""
        key = b'"doc_id":' + msgspec.json.encode(doc_id)
        for number, frame in enumerate(self.meta.index_frames):
            yield from (frame.row + place for place, line in enumerate(self._read_frame_lines(number)) if key in line)

    def index_lines_by_frame(self) -> Iterator[list[bytes]]:
        """Yield the lines of the index, frame by frame."""
        return map(self._read_frame_lines, range(len(self.meta.index_frames)))

    def boundaries(self, row: int) -> NDArray[np.int32]:
        """Return the start and length of each segment in the row, shape (segments, 2)."""
        if self.stored_boundaries is None:
            lengths = np.array([segment.length for segment in self.segments(row)], np.int32)
            return np.stack([np.cumsum(lengths, dtype=np.int32) - lengths, lengths], axis=1)
        boundaries, offsets = self.stored_boundaries
        row = resolve_row(row, len(self))
        return boundaries[offsets[row] : offsets[row + 1]]

    def document_numbers(self, row: int) -> NDArray[np.int32]:
        """Return the segment number of each token in the row, from 0; padding has -1."""
        numbers = np.full(self.meta.seq_len, PADDING_DOCUMENT, np.int32)
        lengths = self.boundaries(row)[:, 1]
        numbers[: lengths.sum()] = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
        return numbers

    @cached_property
    def _read_frame_lines(self) -> Callable[[int], list[bytes]]:
        """Function that returns the lines of a frame, and caches the last result."""
        index, frames, path = self.index, self.meta.index_frames, self.folder / INDEX_FILE

        @functools.lru_cache(maxsize=1)
        def read_frame_lines(number: int) -> list[bytes]:
            if index is None:
                raise InputError("file not found", path, _FIX)
            stop = frames[number + 1].offset if number + 1 < len(frames) else None
            frame = io.BytesIO(index[frames[number].offset : stop])
            return b"".join(decompress(frame, ZSTD, path, _FIX)).splitlines()

        return read_frame_lines


def resolve_row(row: int, rows: int) -> int:
    """Return a row's number from 0; -1 means the last row.

    Raise IndexError if it is out of range.
    """
    number = operator.index(row)
    if not -rows <= number < rows:
        raise IndexError(f"row must be from {-rows:,} to {rows - 1:,}, got {number:,}")
    return number % rows


def open_packed(folder: Path | str, digest: str | None = None) -> PackedSet:
    """Open the packed set in a folder, and check its file sizes and digest.

    If `digest` is None, any set is accepted. A folder without a manifest can be opened too.

    Raises:
        InputError: A file is missing or damaged.
        RetryableError: The set's digest differs, or the set was replaced during this call.
    """
    folder = Path(folder).absolute()
    try:
        with pin_folder(folder, _RETRY_HINT) as pinned:
            return _load_packed_set(pinned, digest)
    except (FileNotFoundError, NotADirectoryError):
        require_folder(folder, _FOLDER_FIX)
        raise replaced_error(folder, _RETRY_HINT) from None


def _load_packed_set(pinned: PinnedFolder, digest: str | None) -> PackedSet:
    folder = pinned.path
    sealed = read_pinned_manifest(pinned) if pinned.size(MANIFEST_FILE) is not None else None
    for name in (META_FILE, INPUT_IDS_FILE):
        if pinned.size(name) is None:
            what = "file not found" if sealed is None else f"{sealed.kind} has no such file"
            raise InputError(what, folder / name, _FOLDER_FIX)
    with pinned.open(META_FILE) as file:
        meta_bytes = file.read()
    actual_digest = sealed.digest if sealed is not None else f"sha256:{hashlib.sha256(meta_bytes).hexdigest()}"
    if digest is not None and actual_digest != digest:
        raise RetryableError("the folder was replaced since the set was opened", folder, _RETRY_HINT)
    try:
        meta = _meta_decoder.decode(meta_bytes)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"not the description of a packed set ({error})", folder / META_FILE, _FIX) from None
    with pinned.open(INPUT_IDS_FILE) as file:
        size, expected = os.fstat(file.fileno()).st_size, meta.n_seqs * meta.seq_len * TOKEN_DTYPE.itemsize
        if meta.dtype != TOKEN_DTYPE.name or size != expected:
            what = f"{meta.n_seqs:,} rows of {meta.seq_len:,} {meta.dtype} take {expected:,} bytes, got {size:,}"
            raise InputError(what, folder / INPUT_IDS_FILE, _FIX)
        input_ids = np.memmap(file, TOKEN_DTYPE, "r", shape=(meta.n_seqs, meta.seq_len))
    has_boundaries = pinned.size(BOUNDARIES_FILE) is not None
    boundaries = (
        (_map_array(pinned, BOUNDARIES_FILE), _map_array(pinned, BOUNDARY_OFFSETS_FILE)) if has_boundaries else None
    )
    return PackedSet(folder, actual_digest, meta, input_ids, _map_index(pinned), boundaries)


def read_pinned_manifest(pinned: PinnedFolder) -> Manifest:
    """Read a sealed folder's manifest; InputError if a file is missing or resized."""
    with pinned.open(MANIFEST_FILE) as file:
        manifest = Manifest.from_bytes(file.read(), pinned.path / MANIFEST_FILE)
    for stored in manifest.storage:
        size = pinned.size(stored.path)
        if size != stored.bytes:
            what = "the file is missing" if size is None else f"has {size:,} bytes, sealed with {stored.bytes:,}"
            raise InputError(what, pinned.path / stored.path, _FIX)
    return manifest


def _map_index(pinned: PinnedFolder) -> bytes | mmap.mmap | None:
    size = pinned.size(INDEX_FILE)
    if not size:  # an empty file cannot be mapped
        return None if size is None else b""
    with pinned.open(INDEX_FILE) as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _map_array(pinned: PinnedFolder, file_name: str) -> NDArray[Any]:
    """Map an .npy file of a pinned folder by file handle; `np.load` maps only by path."""
    with pinned.open(file_name) as file:
        header = read_npy_header(file, pinned.path / file_name)
        try:
            return np.memmap(file, header.dtype, "r", header.offset, header.shape, header.order)
        except ValueError as error:
            raise InputError(f"not an array ({error})", pinned.path / file_name, _FIX) from None


_meta_decoder = msgspec.json.Decoder(PackedSetMeta)
_segments_decoder = msgspec.json.Decoder(list[Segment])
