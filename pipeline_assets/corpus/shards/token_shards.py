"""Token shards, read: rows as views of files that are mapped, and the documents that a row is from."""

import functools
import os
import resource
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.formats.memmap import DOCUMENTS, NpyHeader, read_npy_header, sealed_in
from pipeline_assets.spine.errors import InputError, RetryableError
from pipeline_assets.spine.manifest import FILE_NAME, FileContent
from pipeline_assets.spine.pinned_folder import PinnedFolder, pin_folder, replaced_error

if TYPE_CHECKING:
    import pyarrow as pa

SHARD_SUFFIX = ".npy"
_FIX = "restore the file or rebuild the set"
_AGAIN = "open the set again"
_FOLDER_FIX = "give the folder of token shards"
# A map keeps its file open: half of the files that a process may have are left to others.
_MOST_MAPS = max(64, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)
_KEPT_ROW_GROUPS = 4


@dataclass(frozen=True)
class ShardFile:
    """A file of rows, as it was when its set was opened.

    Attributes:
        offset: of the first value, in bytes.
        written: which file it is, and when it was written: device, inode, nanoseconds.
    """

    path: str
    rows: int
    offset: int
    written: tuple[int, int, int]


@dataclass(frozen=True)
class TokenShards:
    """Token shards, open: `shards[row]` are the tokens of a row, a view of its file of shape (seq_len,).

    Files are mapped when a row of theirs is first asked for, as many as half of what `ulimit -n` says. One that was
    replaced since the set was opened is refused then. Pickled, it is its folder and digest: it is opened again there,
    and refused where it is another set by then.

    Attributes:
        digest: of its manifest.
        eos: the id that closes a document.
        first_rows: of each file its first row, and how many rows there are, shape (files + 1,).
    """

    folder: Path
    digest: str
    dtype: np.dtype[Any]
    seq_len: int
    eos: int
    vocabulary_size: int
    tokenizer_sha256: str
    files: tuple[ShardFile, ...]

    def __reduce__(self) -> tuple[Callable[[Path, str], "TokenShards"], tuple[Path, str]]:
        return open_shards, (self.folder, self.digest)

    @cached_property
    def first_rows(self) -> NDArray[np.int64]:
        return np.cumsum([0, *(file.rows for file in self.files)], dtype=np.int64)

    def __len__(self) -> int:
        return int(self.first_rows[-1])

    def __getitem__(self, row: int) -> NDArray[Any]:
        row = range(len(self))[row]
        number = int(np.searchsorted(self.first_rows, row, "right")) - 1
        tokens: NDArray[Any] = self.mapped(number)[row - self.first_rows[number]]
        return tokens

    def mapped(self, number: int) -> NDArray[Any]:
        """The rows of one file, by its number, a view of shape (rows, seq_len). Raises RetryableError where it was
        replaced since.
        """
        return _mapped(self.folder, self.files[number], self.dtype, self.seq_len)

    def shard_documents(self, row: int) -> list[dict[str, Any]]:
        """Lines of documents.parquet whose documents have tokens in a row, in their order; only their part is read.

        Raises:
            InputError: some of the row has no line.
            ArrowException: the file can't be read.
        """
        row = range(len(self))[row]
        begin, end = row * self.seq_len, (row + 1) * self.seq_len
        low = max(0, int(np.searchsorted(self._group_starts, begin, "right")) - 1)
        high = int(np.searchsorted(self._group_starts, end))
        lines = [line for group in range(low, high) for line in _lines_in(self._row_group(group), begin, end)]
        if sum(min(line["start"] + line["tokens"], end) - max(line["start"], begin) for line in lines) != self.seq_len:
            raise InputError(f"its lines don't make up row {row:,}", self.folder / DOCUMENTS, _FIX)
        return lines

    @cached_property
    def _group_starts(self) -> NDArray[np.int64]:
        """`start` of the first line of each row group, which its statistics tell."""
        from pipeline_assets.corpus.formats.parquet import open_parquet

        with open_parquet(self.folder / DOCUMENTS) as file:
            place = file.schema_arrow.get_field_index("start")
            groups = [file.metadata.row_group(group) for group in range(file.num_row_groups)]
            return np.array([group.column(place).statistics.min for group in groups if group.num_rows], np.int64)

    @cached_property
    def _row_group(self) -> Callable[[int], "pa.Table"]:
        """A row group of documents.parquet by its number; keeps the last ones."""
        from pipeline_assets.corpus.formats.parquet import open_parquet

        def read(group: int) -> "pa.Table":
            with open_parquet(self.folder / DOCUMENTS) as file:
                return file.read_row_group(group, use_threads=False)

        return functools.lru_cache(_KEPT_ROW_GROUPS)(read)


def open_shards(folder: Path | str, digest: str | None = None) -> TokenShards:
    """The token shards in a folder; sizes of all files are checked, and the headers of the shards.

    Args:
        digest: of the set that is expected.
    Raises:
        InputError: nothing of the kind is sealed there; a file is missing, or has another size or shape.
        RetryableError: another set than is expected, or one that took the folder's place while this one was opened.
    """
    folder = Path(folder)
    try:
        with pin_folder(folder, _AGAIN) as opened:
            return _token_shards(opened, digest)
    except (FileNotFoundError, NotADirectoryError):
        raise InputError("there is no such folder", folder, _FOLDER_FIX) from None


def _token_shards(opened: PinnedFolder, digest: str | None) -> TokenShards:
    if opened.size(FILE_NAME) is None:
        raise InputError("nothing is sealed here (no manifest.json)", opened.path, _FOLDER_FIX)
    manifest = sealed_in(opened)
    if digest is not None and manifest.digest != digest:
        raise RetryableError("it was replaced since the set was opened", opened.path, _AGAIN)
    listed = [file for file in manifest.identity.files if file.path.endswith(SHARD_SUFFIX)]
    decisions = manifest.identity.decisions
    if not listed or "seq_len" not in decisions:
        raise InputError(f"this is {manifest.kind}, which has no token shards", opened.path, _FOLDER_FIX)
    dtype, seq_len = np.dtype(decisions["dtype"]).newbyteorder("<"), decisions["seq_len"]
    return TokenShards(
        folder=opened.path,
        digest=manifest.digest,
        dtype=dtype,
        seq_len=seq_len,
        eos=decisions["end_of_document"],
        vocabulary_size=decisions["vocabulary_size"],
        tokenizer_sha256=decisions["tokenizer_sha256"],
        files=tuple(_shard_file(opened, file, dtype, seq_len) for file in listed),
    )


def _shard_file(opened: PinnedFolder, listed: FileContent, dtype: np.dtype[Any], seq_len: int) -> ShardFile:
    with opened.open(listed.path) as file:
        header = shard_header(file, opened.path / listed.path, (listed.rows, seq_len), dtype)
        return ShardFile(listed.path, listed.rows, header.offset, _identity(os.fstat(file.fileno())))


def shard_header(file: BinaryIO, where: Path, shape: tuple[int | None, int], dtype: np.dtype[Any]) -> NpyHeader:
    """The header of a shard, open at its beginning. Raises InputError where it, or the file's size, isn't that of rows
    of this shape and dtype, as its manifest has them.
    """
    header, size = read_npy_header(file, where), os.fstat(file.fileno()).st_size
    if (header.shape, header.dtype, header.order, header.file_bytes) != (shape, dtype, "C", size):
        told = f"{header.dtype} of shape {header.shape} in {header.order} order"
        raise InputError(f"it has {size:,} bytes, {told}; its manifest says {dtype} of shape {shape}", where, _FIX)
    return header


def _identity(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_dev, found.st_ino, found.st_mtime_ns


@functools.lru_cache(_MOST_MAPS)
def _mapped(folder: Path, file: ShardFile, dtype: np.dtype[Any], seq_len: int) -> NDArray[Any]:
    try:
        with open(folder / file.path, "rb") as opened:
            if _identity(os.fstat(opened.fileno())) != file.written:
                raise replaced_error(folder, _AGAIN)
            return np.asarray(np.memmap(opened, dtype, "r", file.offset, (file.rows, seq_len)))
    except FileNotFoundError:
        raise replaced_error(folder, _AGAIN) from None


def _lines_in(documents: "pa.Table", begin: int, end: int) -> list[dict[str, Any]]:
    """The lines of documents that have tokens from `begin` to before `end` of the stream."""
    from pipeline_assets.corpus.formats.arrow_columns import numbers

    starts = numbers(documents["start"])
    low, high = max(0, int(np.searchsorted(starts, begin, "right")) - 1), int(np.searchsorted(starts, end))
    lines: list[dict[str, Any]] = documents.slice(low, high - low).to_pylist()
    return [line for line in lines if line["start"] + line["tokens"] > begin]
