"""Reader of token shards: rows as views of mapped files."""

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

from pipeline_assets.corpus.formats.memmap import DOCUMENTS_FILE, read_pinned_manifest
from pipeline_assets.corpus.formats.npy_header import NpyHeader, read_npy_header
from pipeline_assets.spine.argument_types import check_arguments
from pipeline_assets.spine.errors import InputError, RetryableError
from pipeline_assets.spine.files import require_folder
from pipeline_assets.spine.manifest import MANIFEST_FILE, FileContent
from pipeline_assets.spine.replacement import PinnedFolder, pin_folder, replaced_error

if TYPE_CHECKING:
    import pyarrow as pa

SHARD_SUFFIX = ".npy"
_FIX = "restore the file or rebuild the set"
_REOPEN_HINT = "open the set again"
_FOLDER_FIX = "pass the folder of token shards"
# A map keeps its file open, so use at most half of the process's limit of open files.
_MAX_MAPS = max(64, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)
_CACHED_ROW_GROUPS = 4


@dataclass(frozen=True)
class ShardFile:
    """Shard file at the time when the token shards were opened.

    Attributes:
        offset: Byte position of the first token.
        file_state: Device, inode, and modification time in nanoseconds, to detect that the file was replaced.
    """

    path: str
    rows: int
    offset: int
    file_state: tuple[int, int, int]


@dataclass(frozen=True)
class TokenShards:
    """Opened token shards; `shards[row]` is a view of a row, shape (seq_len,).

    A file is mapped when one of its rows is first read; a RetryableError is raised if the file was replaced after
    opening. A process keeps at most max(64, `ulimit -n` / 2) files mapped. A pickle has only folder and digest;
    unpickling opens the folder again, and raises RetryableError if the digest differs. `eos` is the id of the
    end-of-document token.
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
        """First row of each file, then the number of rows; shape (files + 1,)."""
        return np.cumsum([0, *(file.rows for file in self.files)], dtype=np.int64)

    def __len__(self) -> int:
        return int(self.first_rows[-1])

    def __getitem__(self, row: int) -> NDArray[Any]:
        row = range(len(self))[row]
        number = int(np.searchsorted(self.first_rows, row, "right")) - 1
        tokens: NDArray[Any] = self.map_file(number)[row - self.first_rows[number]]
        return tokens

    def map_file(self, file_number: int) -> NDArray[Any]:
        """Map one file, and return a view of its rows, shape (rows, seq_len)."""
        return _map_shard(self.folder, self.files[file_number], self.dtype, self.seq_len)

    def document_entries_in_row(self, row: int) -> list[dict[str, Any]]:
        """Return the entries of documents.parquet for a row's documents, in row order.

        Raises:
            InputError: documents.parquet is damaged, or has no entry for a part of the row.
        """
        row = range(len(self))[row]
        begin, end = row * self.seq_len, (row + 1) * self.seq_len
        low = max(0, int(np.searchsorted(self._group_starts, begin, "right")) - 1)
        high = int(np.searchsorted(self._group_starts, end))
        groups = map(self._read_row_group, range(low, high))
        entries = [entry for group in groups for entry in _entries_in(group, begin, end)]
        covered = (min(entry["start"] + entry["tokens"], end) - max(entry["start"], begin) for entry in entries)
        if sum(covered) != self.seq_len:
            raise InputError(f"lines do not cover row {row:,}", self.folder / DOCUMENTS_FILE, _FIX)
        return entries

    @cached_property
    def _group_starts(self) -> NDArray[np.int64]:
        """Value of `start` in the first entry of each row group of documents.parquet."""
        from pipeline_assets.corpus.formats.parquet import StoredParquet

        with StoredParquet(self.folder / DOCUMENTS_FILE) as file:
            column = file.schema_arrow.get_field_index("start")
            groups = [file.metadata.row_group(group) for group in range(file.num_row_groups)]
            return np.array([group.column(column).statistics.min for group in groups if group.num_rows], np.int64)

    @cached_property
    def _read_row_group(self) -> Callable[[int], "pa.Table"]:
        """Function that reads a row group of documents.parquet, and caches the last four."""
        from pipeline_assets.corpus.formats.parquet import StoredParquet

        def read(group: int) -> "pa.Table":
            with StoredParquet(self.folder / DOCUMENTS_FILE) as file:
                return file.read_row_group(group)

        return functools.lru_cache(_CACHED_ROW_GROUPS)(read)


@check_arguments
def open_shards(folder: Path | str, digest: str | None = None) -> TokenShards:
    """Open sealed token shards, and check file sizes and the headers of shard files.

    If `digest` is None, any token shards are accepted.

    Raises:
        InputError: The folder has no sealed token shards; a file is missing, or its size or shape differs.
        RetryableError: The token shards have a different digest, or were replaced while they were opened.
    """
    folder = Path(folder).absolute()
    try:
        with pin_folder(folder, _REOPEN_HINT) as pinned:
            if pinned.size(MANIFEST_FILE) is None:
                raise InputError("no sealed artifact found (manifest.json is missing)", folder, _FOLDER_FIX)
            manifest = read_pinned_manifest(pinned)
            if digest is not None and manifest.digest != digest:
                raise RetryableError("set was replaced since it was opened", folder, _REOPEN_HINT)
            shard_files = [file for file in manifest.identity.files if file.path.endswith(SHARD_SUFFIX)]
            decisions = manifest.identity.decisions
            if not shard_files or "seq_len" not in decisions:
                raise InputError(f"expected token shards, got {manifest.kind}", folder, _FOLDER_FIX)
            dtype, seq_len = np.dtype(decisions["dtype"]).newbyteorder("<"), decisions["seq_len"]
            files = tuple(_shard_file(pinned, file, dtype, seq_len) for file in shard_files)
    except (FileNotFoundError, NotADirectoryError):
        require_folder(folder, _FOLDER_FIX)
        raise replaced_error(folder, _REOPEN_HINT) from None
    return TokenShards(
        folder=folder,
        digest=manifest.digest,
        dtype=dtype,
        seq_len=seq_len,
        eos=decisions["end_of_document"],
        vocabulary_size=decisions["vocabulary_size"],
        tokenizer_sha256=decisions["tokenizer_sha256"],
        files=files,
    )


def _shard_file(pinned_folder: PinnedFolder, entry: FileContent, dtype: np.dtype[Any], seq_len: int) -> ShardFile:
    with pinned_folder.open(entry.path) as file:
        header = read_shard_header(file, pinned_folder.path / entry.path, (entry.rows, seq_len), dtype)
        return ShardFile(entry.path, entry.rows, header.offset, _file_state(os.fstat(file.fileno())))


def read_shard_header(file: BinaryIO, where: Path, shape: tuple[int | None, int], dtype: np.dtype[Any]) -> NpyHeader:
    """Read and check the header of a shard file.

    `file` must be positioned at its start.

    Raises:
        InputError: The file's shape, dtype or size is not the expected one.
    """
    header, size = read_npy_header(file, where), os.fstat(file.fileno()).st_size
    if (header.shape, header.dtype, header.order, header.file_bytes) != (shape, dtype, "C", size):
        actual = f"{header.dtype} of shape {header.shape} in {header.order} order with {size:,} bytes"
        raise InputError(f"expected {dtype} of shape {shape} in C order, got {actual}", where, _FIX)
    return header


def _file_state(stat: os.stat_result) -> tuple[int, int, int]:
    return stat.st_dev, stat.st_ino, stat.st_mtime_ns


@functools.lru_cache(_MAX_MAPS)
def _map_shard(folder: Path, file: ShardFile, dtype: np.dtype[Any], seq_len: int) -> NDArray[Any]:
    try:
        with open(folder / file.path, "rb") as opened:
            if _file_state(os.fstat(opened.fileno())) != file.file_state:
                raise replaced_error(folder, _REOPEN_HINT)
            return np.asarray(np.memmap(opened, dtype, "r", file.offset, (file.rows, seq_len)))
    except FileNotFoundError:
        raise replaced_error(folder, _REOPEN_HINT) from None


def _entries_in(documents: "pa.Table", begin: int, end: int) -> list[dict[str, Any]]:
    """Return the entries of documents that have tokens in [begin, end) of the stream."""
    from pipeline_assets.corpus.formats.arrow_columns import to_numpy

    starts = to_numpy(documents["start"])
    low, high = max(0, int(np.searchsorted(starts, begin, "right")) - 1), int(np.searchsorted(starts, end))
    entries: list[dict[str, Any]] = documents.slice(low, high - low).to_pylist()
    return [entry for entry in entries if entry["start"] + entry["tokens"] > begin]
