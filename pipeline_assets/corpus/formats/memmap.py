"""Packed sets: rows of one length as one array on disk, and what tells where each token is from.

input_ids.mmap        int32, little-endian, shape (n_seqs, seq_len), row after row, nothing else
meta.json             shape, tokenizer, ids of end and padding, counts; a label: it has a time and a path in it
index.jsonl.zst       a line a row: its segments, `[{"doc_id", "source", "start", "length"}]`, one after the other
                      from the row's first token on; `start` is the first token in the document, whose end is its
                      last token; what is behind the last segment is padding
documents.parquet     a line for each drawn document: see `packing.documents`
boundaries.npy        where the recipe asks: int32 (segments, 2), first token in the row and tokens of each segment
boundary_offsets.npy  int64 (n_seqs + 1,): the first segment of each row
"""

import functools
import io
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.formats.compression import ZSTD, decompressed
from pipeline_assets.corpus.spine.artifact import open_artifact
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.manifest import FILE_NAME

INPUT_IDS, META, INDEX, DOCUMENTS = "input_ids.mmap", "meta.json", "index.jsonl.zst", "documents.parquet"
BOUNDARIES, BOUNDARY_OFFSETS = "boundaries.npy", "boundary_offsets.npy"
DTYPE = np.dtype("<i4")
PADDING = -1
_FIX = "restore the file or rebuild the set"
_Version = tuple[int, int]  # inode and time of the last write: those of another file, even in the same place, differ


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

    It reads the set that it was opened on: once another one has taken its place, what is not read yet is an error.
    Pickled, as for a worker of a loader, it is its folder, which is opened again there.

    Attributes:
        index_version: of the index as it was opened; None where there is none.
    """

    folder: Path
    meta: Meta
    input_ids: NDArray[np.int32]
    index_version: _Version | None

    def __reduce__(self) -> tuple[Callable[[Path], "PackedSet"], tuple[Path]]:
        return open_packed, (self.folder,)

    def __len__(self) -> int:
        return self.meta.n_seqs

    def __getitem__(self, row: int) -> NDArray[np.int32]:
        tokens: NDArray[np.int32] = self.input_ids[row]
        return tokens

    def segments(self, row: int) -> list[Segment]:
        """The documents in a row, in their order; reads the part of the index that the row is in.

        Raises:
            InputError: the index is damaged, or another one than was opened, or has no such row.
        """
        row = range(len(self))[row]
        number = int(np.searchsorted(self._frame_rows, row, side="right")) - 1
        lines, place = self._frame_lines(number), row - self.meta.index_frames[number].row
        if place >= len(lines):
            raise InputError(f"it has no line for row {row:,}", self.folder / INDEX, _FIX)
        return _segments_decoder.decode(lines[place])

    def rows_with(self, doc_id: str) -> Iterator[int]:
        """The rows that have a segment of a document with this id, ascending; reads the whole index, a frame at a time.

        Raises:
            InputError: the index is damaged, or another one than was opened.
        """
        wanted = b'"doc_id":' + msgspec.json.encode(doc_id)
        for number, frame in enumerate(self.meta.index_frames):
            yield from (frame.row + place for place, line in enumerate(self._frame_lines(number)) if wanted in line)

    def boundaries(self, row: int) -> NDArray[np.int32]:
        """First token in the row and length of each segment, shape (segments, 2); from the arrays where they are."""
        if self._boundaries is None:
            lengths = np.array([segment.length for segment in self.segments(row)], np.int32)
            return np.stack([np.cumsum(lengths, dtype=np.int32) - lengths, lengths], axis=1)
        boundaries, offsets = self._boundaries
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

    def _frame_lines(self, number: int) -> list[bytes]:
        frames = self.meta.index_frames
        stop = frames[number + 1].offset if number + 1 < len(frames) else None
        return _lines(self.folder / INDEX, self.index_version, frames[number].offset, stop)

    @cached_property
    def _frame_rows(self) -> NDArray[np.int64]:
        return np.array([frame.row for frame in self.meta.index_frames], np.int64)

    @cached_property
    def _boundaries(self) -> tuple[NDArray[np.int32], NDArray[np.int64]] | None:
        if not (self.folder / BOUNDARIES).exists():
            return None
        boundaries: NDArray[np.int32] = np.load(self.folder / BOUNDARIES, mmap_mode="r")
        offsets = np.load(self.folder / BOUNDARY_OFFSETS, mmap_mode="r")
        if _version(self.folder / INDEX) != self.index_version:  # the files of a set are replaced all together
            raise _replaced(self.folder / BOUNDARIES)
        return boundaries, offsets


def open_packed(folder: Path | str) -> PackedSet:
    """The packed set in a folder; sizes are checked, and with the manifest those of all files.

    Raises:
        InputError: a file is missing or has another size, or meta.json says nothing of the kind.
    """
    folder = Path(folder)
    if (folder / FILE_NAME).exists():
        open_artifact(folder)
    try:
        meta = _meta_decoder.decode((folder / META).read_bytes())
        size = (folder / INPUT_IDS).stat().st_size
    except FileNotFoundError as error:
        raise InputError("there is no such file", error.filename, "give the folder of a packed set") from None
    except msgspec.DecodeError as error:
        raise InputError(f"this doesn't describe a packed set ({error})", folder / META, _FIX) from None
    expected = meta.n_seqs * meta.seq_len * DTYPE.itemsize
    if meta.dtype != DTYPE.name or size != expected:
        what = f"it has {size:,} bytes, {meta.n_seqs:,} rows of {meta.seq_len:,} {meta.dtype} take {expected:,}"
        raise InputError(what, folder / INPUT_IDS, _FIX)
    input_ids = np.memmap(folder / INPUT_IDS, DTYPE, "r", shape=(meta.n_seqs, meta.seq_len))
    return PackedSet(folder, meta, input_ids, _version(folder / INDEX))


_meta_decoder = msgspec.json.Decoder(Meta)
_segments_decoder = msgspec.json.Decoder(list[Segment])


@functools.lru_cache(maxsize=1)
def _lines(index: Path, version: _Version | None, start: int, stop: int | None) -> list[bytes]:
    """The lines of one frame.

    Raises:
        InputError: the file is damaged, or not of this version.
    """
    with open(index, "rb") as file:
        if _version(file.fileno()) != version:
            raise _replaced(index)
        file.seek(start)
        frame = io.BytesIO(file.read() if stop is None else file.read(stop - start))
    return b"".join(decompressed(frame, ZSTD, index, _FIX, 1 << 20)).splitlines()


def _version(file: Path | int) -> _Version | None:
    """Of a file, or of an open one; None where there is none."""
    try:
        found = os.stat(file)
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns


def _replaced(file: Path) -> InputError:
    return InputError("it was replaced since the set was opened", file, "open the set again")
