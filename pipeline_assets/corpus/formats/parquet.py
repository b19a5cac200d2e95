"""Parquet files with a content hash, which covers schema, row order and values."""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipeline_assets.corpus.formats.arrow_columns import to_bools, to_numpy, widen_offsets
from pipeline_assets.spine.damage import errors_as_damage
from pipeline_assets.spine.durable import DurableFile
from pipeline_assets.spine.staging import OutputFile

HASH_BLOCK_ROWS = 65_536
_BUFFER_BYTES, _NOUN = 1 << 20, "Parquet file"
_NARROW_TYPES = {pa.string(), pa.binary()}
_STRING_TYPES = {*_NARROW_TYPES, pa.large_string(), pa.large_binary()}


class ContentHash:
    """Sha256 of a table's schema and values, regardless of how Parquet stores them.

    Row groups, compression, encodings and metadata do not change the hash. Blocks of 65,536 rows are hashed column by
    column: validity bits, then all values, with zeros for nulls. Dictionaries are decoded, all NaNs are equal, and
    types with 64-bit offsets (`large_string`) equal those with 32-bit offsets.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._hash = hashlib.sha256()
        for field in schema:
            self._hash.update(f"{field.name}\0{_type_name(field.type)}\0{field.nullable}\n".encode())
        self._pending: list[pa.Table] = []  # the last rows, fewer than a block
        self.rows = 0

    def update(self, table: pa.Table) -> None:
        """Add rows; their division into tables does not change the hash."""
        while table.num_rows:
            head = table.slice(0, HASH_BLOCK_ROWS - self.rows % HASH_BLOCK_ROWS)
            table = table.slice(head.num_rows)
            self._pending.append(head)
            self.rows += head.num_rows
            if self.rows % HASH_BLOCK_ROWS == 0:
                self._hash_block()

    def hexdigest(self) -> str:
        """Return the hash of all rows; call this only after the last row."""
        if self._pending:
            self._hash_block()
        return self._hash.hexdigest()

    def _hash_block(self) -> None:
        for column in pa.concat_tables(self._pending).columns:
            if column.type in _STRING_TYPES:
                # Not combined: together the chunks may exceed 2 GiB of 32-bit offsets.
                _hash_strings(self._hash, [chunk for chunk in column.chunks if len(chunk)])
            else:
                _hash_array(self._hash, column.chunk(0) if column.num_chunks == 1 else column.combine_chunks())
        self._pending = []


class _DiscardableFile(DurableFile):
    """Durable file that ignores all writes while `is_discarding` is true."""

    closed = is_discarding = False

    def write(self, data: bytes | memoryview) -> int:
        return memoryview(data).nbytes if self.is_discarding else super().write(data)

    def close(self) -> None:
        """Do nothing, because `ParquetOutput` closes the file."""


class ParquetOutput:
    """Context manager that writes a zstd Parquet file, durable when the block ends.

    `options` are passed to `pyarrow.parquet.ParquetWriter`.
    """

    def __init__(self, path: Path, schema: pa.Schema, row_group_rows: int = HASH_BLOCK_ROWS, **options: Any) -> None:
        self._file = _DiscardableFile(path)
        self._schema = schema
        self._row_group_rows = row_group_rows
        self._content = ContentHash(schema)
        self._options = {"compression": "zstd", "write_page_checksum": True, **options}

    def __enter__(self) -> Self:
        self._file.__enter__()
        # Buffered, because a column chunk is written in many small pieces.
        self._buffered = pa.BufferedOutputStream(pa.PythonFile(self._file, "w"), _BUFFER_BYTES)
        self._writer = pq.ParquetWriter(self._buffered, self._schema, **self._options)
        return self

    def write(self, table: pa.Table) -> None:
        self._content.update(table)
        self._writer.write_table(table, row_group_size=self._row_group_rows)

    def __exit__(self, *failure: Any) -> None:
        try:
            self._writer.close()
            self._buffered.detach()
        except BaseException as failed:
            self._file.is_discarding = True
            self._file.__exit__(type(failed), failed, failed.__traceback__)
            raise
        self._file.__exit__(*failure)

    def output(self, name: str) -> OutputFile:
        """Describe the finished file; `name` is its path in the staging directory."""
        digest = self._content.hexdigest()
        return OutputFile(name, self._content.rows, self._file.bytes_written, self._file.sha256, digest)


def open_parquet(path: Path) -> pq.ParquetFile:
    """Open a Parquet file; each read of a page verifies the checksum of the page.

    With `use_threads=False`, reads start no threads.
    """
    return pq.ParquetFile(path, pre_buffer=False, page_checksum_verification=True)


class StoredParquet(pq.ParquetFile):  # type: ignore[misc]
    """Parquet file that this project wrote; reads of a damaged file raise InputError.

    Reads start no threads: workers use a core each, and a process with threads cannot fork them.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with errors_as_damage(path, _NOUN):
            super().__init__(path, pre_buffer=False, page_checksum_verification=True)

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        with errors_as_damage(self._path, _NOUN):
            return super().read(self._check_columns(columns), use_threads=False)

    def read_row_group(self, i: int, columns: Sequence[str] | None = None) -> pa.Table:
        with errors_as_damage(self._path, _NOUN):
            return super().read_row_group(i, self._check_columns(columns), use_threads=False)

    def iter_row_groups(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield each row group as a table, in order."""
        for group in range(self.num_row_groups):
            yield self.read_row_group(group, columns)

    def iter_batches(self, *sizes: int, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        with errors_as_damage(self._path, _NOUN):
            yield from super().iter_batches(*sizes, columns=self._check_columns(columns), use_threads=False)

    def _check_columns(self, columns: Sequence[str] | None) -> list[str] | None:
        """Return `columns`; raise ValueError if one is missing (pyarrow would omit it)."""
        missing = {name.partition(".")[0] for name in columns or ()} - {*self.schema_arrow.names}
        if missing:
            raise ValueError(f"column not found: {', '.join(sorted(missing))}")
        return None if columns is None else [*columns]


def read_footer(path: Path) -> pq.FileMetaData:
    """Read the footer of a file that this project wrote."""
    with StoredParquet(path) as file:
        return file.metadata


def read_columns(path: Path, columns: list[str] | None = None) -> pa.Table:
    """Read columns of a file that this project wrote; None reads all columns."""
    with StoredParquet(path) as file:
        return file.read(columns)


def _type_name(data_type: pa.DataType) -> str:
    if pa.types.is_dictionary(data_type):
        return _type_name(data_type.value_type)
    if pa.types.is_list(data_type) or pa.types.is_large_list(data_type):
        return f"list<{_nested_type_name(data_type.value_field)}>"
    if pa.types.is_struct(data_type):
        return "struct<" + ", ".join(f"{field.name}: {_nested_type_name(field)}" for field in data_type) + ">"
    return str(data_type).removeprefix("large_")


def _nested_type_name(field: pa.Field) -> str:
    return _type_name(field.type) + ("" if field.nullable else " not null")


def _validity_mask(array: pa.Array) -> NDArray[np.bool_]:
    return to_bools(array.is_valid()) if array.null_count else np.ones(len(array), bool)


def _hash_strings(hasher: Any, chunks: Sequence[pa.Array]) -> None:
    """Hash a string or binary column's non-empty chunks as if they were one array."""
    hasher.update(np.packbits(np.concatenate([_validity_mask(chunk) for chunk in chunks])).tobytes())
    buffers = [_string_buffers(_fill_nulls(chunk)) for chunk in chunks]
    for bounds, _ in buffers:
        hasher.update(np.diff(bounds).tobytes())
    for _, characters in buffers:
        hasher.update(characters)


def _hash_array(hasher: Any, array: pa.Array) -> None:
    """Hash validity bits, then values with zeros for nulls; recurse into nested types."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if array.type in _STRING_TYPES:
        _hash_strings(hasher, [array])
        return
    hasher.update(np.packbits(_validity_mask(array)).tobytes())
    kind = array.type
    if pa.types.is_null(kind):
        hasher.update(len(array).to_bytes(8, "little"))  # validity bits are padded to bytes: 2 and 3 rows look alike
    elif pa.types.is_struct(kind):
        for child in array.flatten():
            _hash_array(hasher, child)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        hasher.update(_fixed_width_values(array.value_lengths().cast(pa.int64())).tobytes())
        _hash_array(hasher, array.flatten())
    else:
        hasher.update(_fixed_width_values(array).tobytes())


def _fill_nulls(array: pa.Array) -> pa.Array:
    """Replace nulls with 0, false or ""."""
    if not array.null_count:
        return array
    # A scalar from a Python value would import pandas, which takes half a second.
    zeros = [None, pa.py_buffer(bytes(16)), pa.py_buffer(b"")][: array.type.num_buffers]
    return array.fill_null(pa.Array.from_buffers(array.type, 1, zeros)[0])


def _string_buffers(array: pa.Array) -> tuple[NDArray[np.int64], memoryview]:
    """Return the offsets, shape (rows + 1,), and bytes of a column without nulls.

    Offsets are positions in the full buffer; the bytes begin at the first of these positions.
    """
    large = widen_offsets(array) if array.type in _NARROW_TYPES else array
    _, offsets, values = large.buffers()
    bounds = np.frombuffer(offsets, np.int64)[large.offset : large.offset + len(large) + 1]
    return bounds, memoryview(b"" if values is None else values)[int(bounds[0]) : int(bounds[-1])]


def _fixed_width_values(array: pa.Array) -> np.ndarray[Any, Any]:
    kind = array.type
    if pa.types.is_boolean(kind):
        return to_bools(array).view(np.uint8)
    if pa.types.is_decimal(kind):
        return np.frombuffer("\n".join(str(value) for value in array.to_pylist()).encode(), np.uint8)
    if pa.types.is_temporal(kind):
        array = array.cast(pa.int64() if kind.bit_width == 64 else pa.int32())
    if not len(array):
        return np.empty(0, np.uint8)
    values = to_numpy(_fill_nulls(array))
    if pa.types.is_floating(kind):
        values = values.copy()
        values[np.isnan(values)] = np.nan  # the same bits for all NaNs
    return values
