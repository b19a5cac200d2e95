"""Selection of the pool rows that are scored."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipeline_assets.corpus.chat_templates.marked_text import uses_chat_template
from pipeline_assets.corpus.formats.parquet import StoredParquet, open_parquet
from pipeline_assets.corpus.scoring.score_shard import OPTIONAL_COLUMNS, POOL_COLUMNS
from pipeline_assets.corpus.scoring.scored_split import wrap_read_errors
from pipeline_assets.spine.errors import InputError, one_line
from pipeline_assets.spine.ledger import dropped_key

_HASH_BYTES = 16


@dataclass(frozen=True)
class Selection:
    """Pool rows that were selected for scoring.

    `counts` has `rows` (all rows of the pool files) and, if not 0, `dropped/repeated_id` (the id occurred earlier) and
    `dropped/not_sampled` (rows beyond `max_rows`).
    """

    row_numbers_by_file: Mapping[str, NDArray[np.int64]]  # ascending, shape (rows,)
    counts: Mapping[str, int]

    @property
    def row_count(self) -> int:
        return sum(map(len, self.row_numbers_by_file.values()))

    def text_bytes(self, files: Mapping[str, Path]) -> int:
        """Estimate the size of the selected texts in bytes, from the pool files' footers."""
        total = 0.0
        for name, rows in self.row_numbers_by_file.items():
            with StoredParquet(files[name]) as file:
                column, size = file.schema_arrow.names.index("text"), 0
                for group in map(file.metadata.row_group, range(file.num_row_groups)):
                    size += group.column(column).total_uncompressed_size
                total += size * len(rows) / max(file.metadata.num_rows, 1)
        return round(total)


def is_harmony_pool(files: Iterable[Path]) -> bool:
    """Check whether the files' first row is Harmony text; True if all files are empty."""
    return not uses_chat_template(first_template(files))


def first_template(files: Iterable[Path]) -> str | None:
    """Return the `template` of the files' first row; None without rows or a template."""
    for path in files:
        with StoredParquet(path) as file:
            if file.metadata.num_rows:
                names = [name for name in file.schema_arrow.names if name == "template"]
                template: str | None = next(file.iter_batches(1, columns=names))[0][0].as_py() if names else None
                return template
    return None


def select_rows(files: Mapping[str, Path], max_rows: int | None) -> Selection:
    """Select the first row with each id, reading the files in order.

    `files` maps names to paths. With `max_rows`, select only this many rows: those with the lowest hashes of ids.
    Memory: 100 to 150 bytes per row. Raise InputError if a file is not a valid pool, or all files are empty.
    """
    by_file = {name: _hash_ids(path) for name, path in files.items()}
    hashes = np.concatenate([np.empty(0, f"V{_HASH_BYTES}"), *by_file.values()])
    if not len(hashes):
        raise InputError("the pools of this split have no rows", next(iter(files.values())), "choose pools with rows")
    _, first = np.unique(hashes, return_index=True)  # first row of each hash, in the order of the hashes
    is_chosen = np.zeros(len(hashes), bool)
    is_chosen[first[:max_rows]] = True
    ends = np.cumsum([len(file_hashes) for file_hashes in by_file.values()])
    parts = np.split(is_chosen, ends[:-1])
    rows = {name: np.flatnonzero(part) for name, part in zip(files, parts, strict=True)}
    dropped = {"repeated_id": len(hashes) - len(first), "not_sampled": len(first) - int(is_chosen.sum())}
    return Selection(
        rows, {"rows": len(hashes)} | {dropped_key(reason): count for reason, count in dropped.items() if count}
    )


def check_pool_file(path: Path) -> None:
    """Raise InputError if a pool file is unreadable or a column is unusable."""
    _open_pool(path).close()


def _open_pool(path: Path) -> pq.ParquetFile:
    """Open a pool file; raise InputError if the file or a column is unusable."""
    try:
        opened = open_parquet(path)
    except (OSError, ValueError) as error:
        what = f"not a Parquet file ({one_line(error, 120)})"
        fix = "use pools in Parquet; polars.read_ndjson(FILE).write_parquet(FILE) converts JSON lines"
        if path.suffix == ".parquet":
            what, fix = "truncated, damaged or not a Parquet file", f"fetch or write it again; {fix}"
        raise InputError(what, path, fix) from None
    try:
        names = opened.schema_arrow.names
        missing = [name for name in POOL_COLUMNS if name not in names]
        if missing:
            fix = f"a pool needs the columns {', '.join(POOL_COLUMNS)}; this file has {', '.join(names[:12])}"
            raise InputError(f"column not found: {', '.join(missing)}", path, fix)
        _check_types(opened.schema_arrow, path)
    except BaseException:
        opened.close()
        raise
    return opened


def _hash_ids(path: Path) -> NDArray[np.void]:
    """Check a pool file, and return 16 bytes of each id's sha256, shape (rows,)."""
    hashes: list[bytes] = []
    with _open_pool(path) as file, wrap_read_errors(path):
        for batch in file.iter_batches(columns=["id"], use_threads=False):
            ids = batch.column("id").to_pylist()
            if None in ids:
                row = len(hashes) + ids.index(None)
                fix = "give every row an id, because scores refer to rows by id"
                raise InputError(f"row {row:,} has no id", path, fix)
            hashes += (hashlib.sha256(str(row_id).encode()).digest()[:_HASH_BYTES] for row_id in ids)
    return np.frombuffer(b"".join(hashes), f"V{_HASH_BYTES}")


def _check_types(schema: pa.Schema, path: Path) -> None:
    for name in (*POOL_COLUMNS, *OPTIONAL_COLUMNS):
        if name not in schema.names:
            continue
        kind = schema.field(name).type
        values = kind.value_type if pa.types.is_dictionary(kind) else kind
        is_text = pa.types.is_string(values) or pa.types.is_large_string(values) or pa.types.is_string_view(values)
        if not (is_text or pa.types.is_null(values) or (name == "id" and pa.types.is_integer(values))):
            raise InputError(f"column {name} must be text, got {kind}", path, "write that column as text")
