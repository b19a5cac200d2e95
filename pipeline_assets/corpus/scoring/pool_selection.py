"""Selection of the pool rows that are scored."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline_assets.corpus.formats.parquet import open_parquet
from pipeline_assets.corpus.scoring.score_shard import (
    LOSS_RULE,
    POOL_COLUMNS,
)
from pipeline_assets.corpus.scoring.scored_split import wrap_read_errors
from pipeline_assets.spine.errors import InputError, one_line
from pipeline_assets.spine.ledger import dropped_key

_HASH_BYTES = 16


@dataclass(frozen=True)
class Selection:
    """Rows that are scored.

    Attributes:
        rows: their numbers by file, ascending, shape (rows,).
        counts: `rows` of all pools, `dropped/repeated_id` (an earlier row has the id: pools overlap),
            `dropped/not_sampled`.
    """

    rows: Mapping[str, NDArray[np.int64]]
    counts: Mapping[str, int]

    @property
    def size(self) -> int:
        return sum(map(len, self.rows.values()))

    def text_bytes(self, files: Mapping[str, Path]) -> int:
        """What their texts hold, in proportion to their number: footers tell it of each file."""
        found = 0.0
        for name, rows in self.rows.items():
            with open_parquet(files[name]) as file:
                place, size = file.schema_arrow.names.index("text"), 0
                for group in map(file.metadata.row_group, range(file.num_row_groups)):
                    size += group.column(place).total_uncompressed_size
                found += size * len(rows) / max(file.metadata.num_rows, 1)
        return round(found)


def select_rows(files: Mapping[str, Path], max_rows: int | None) -> Selection:
    """The first row of each id, in the order of the files; of more than `max_rows` those whose ids have the lowest
    hashes. Memory: 16 bytes a row, and what sorting them takes.

    Raises:
        InputError: a file is no Parquet, or damaged; it lacks a column that is needed, or one is of another type; a row
            has no id; or there is no row.
    """
    hashes = {name: _id_hashes(path) for name, path in files.items()}
    together = np.concatenate([np.empty(0, f"V{_HASH_BYTES}"), *hashes.values()])
    if not len(together):
        raise InputError(
            "there is no row in the pools of this split", next(iter(files.values())), "give some that have"
        )
    _, first = np.unique(together, return_index=True)  # in the order of the hashes
    is_chosen = np.zeros(len(together), bool)
    is_chosen[first[:max_rows]] = True
    ends = np.cumsum([len(of_file) for of_file in hashes.values()])
    parts = np.split(is_chosen, ends[:-1])
    rows = {name: np.flatnonzero(part) for name, part in zip(files, parts, strict=True)}
    dropped = {"repeated_id": len(together) - len(first), "not_sampled": len(first) - int(is_chosen.sum())}
    return Selection(
        rows, {"rows": len(together)} | {dropped_key(reason): count for reason, count in dropped.items() if count}
    )


def _id_hashes(path: Path) -> NDArray[np.void]:
    """The first bytes of the sha256 of each id, shape (rows,)."""
    found: list[bytes] = []
    try:
        opened = open_parquet(path)
    except (OSError, ValueError) as error:
        what = f"this is no Parquet ({one_line(error, 120)})"
        fix = "give pools as Parquet: polars.read_ndjson(FILE).write_parquet(FILE) makes that of JSON lines"
        if path.suffix == ".parquet":
            what, fix = "it is cut short or damaged, or no Parquet", f"fetch or write it again; {fix}"
        raise InputError(what, path, fix) from None
    with opened as file:
        missing = [name for name in POOL_COLUMNS if name not in file.schema_arrow.names]
        if missing:
            present = ", ".join(file.schema_arrow.names[:12])
            fix = f"a pool needs the columns {', '.join(POOL_COLUMNS)}; this file has {present}"
            raise InputError(f"it has no column {', '.join(missing)}", path, fix)
        _refuse_other_types(file.schema_arrow, path)
        with wrap_read_errors(path):
            for batch in file.iter_batches(columns=["id"], use_threads=False):
                ids = batch.column("id").to_pylist()
                if None in ids:
                    row = len(found) + ids.index(None)
                    raise InputError(f"row {row:,} has no id", path, "give every row an id: scores are told by it")
                found += (hashlib.sha256(str(one).encode()).digest()[:_HASH_BYTES] for one in ids)
    return np.frombuffer(b"".join(found), f"V{_HASH_BYTES}")


def _refuse_other_types(schema: pa.Schema, path: Path) -> None:
    for name in (*POOL_COLUMNS, LOSS_RULE):
        if name not in schema.names:
            continue
        kind = schema.field(name).type
        values = kind.value_type if pa.types.is_dictionary(kind) else kind
        is_text = pa.types.is_string(values) or pa.types.is_large_string(values) or pa.types.is_string_view(values)
        if not (is_text or pa.types.is_null(values) or (name == "id" and pa.types.is_integer(values))):
            raise InputError(f"its column {name} is {kind}, and no text", path, "write that column as text")
