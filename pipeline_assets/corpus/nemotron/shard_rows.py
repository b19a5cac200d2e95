"""The stage `normalise`: a shard of a split's raw rows → its normalised rows, the ids of these, its rejects, its tools.

Rows are read, rendered, encoded and written in blocks, each a row group: what a block holds depends on the shard alone.
"""

import gc
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import pyarrow as pa

from pipeline_assets.corpus.doc_ids import IdsWriter
from pipeline_assets.corpus.document_shards import IDS, REJECTS
from pipeline_assets.corpus.formats.arrow import numbers
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, JsonlZstWriter, write_rows
from pipeline_assets.corpus.formats.parquet import ParquetOutput
from pipeline_assets.corpus.nemotron.normalise_rows import NormalisedRows, normalise_rows
from pipeline_assets.corpus.nemotron.parquet_values import parquet_files
from pipeline_assets.corpus.nemotron.row_checks import encoding_faults
from pipeline_assets.corpus.nemotron.row_settings import RowOrigin, RowSettings
from pipeline_assets.corpus.nemotron.schema import SCHEMA
from pipeline_assets.corpus.nemotron.source_rows import RowShard, SourceRow, read_shard
from pipeline_assets.corpus.readers.columns import Fault
from pipeline_assets.corpus.spine.building import BuildFolder, Receipt
from pipeline_assets.corpus.spine.collector import no_cycles
from pipeline_assets.corpus.spine.rejects import Reject
from pipeline_assets.corpus.spine.sealing import WORK
from pipeline_assets.corpus.spine.stage import Window
from pipeline_assets.corpus.tokens.encode import kept_encoder
from pipeline_assets.corpus.tokens.encoded_blocks import OracleDisagrees, is_spot_checked
from pipeline_assets.corpus.tokens.o200k_harmony import Driver, Encoder

_BLOCK_CHARACTERS = 8 << 20
_BLOCK_ROWS = 4096
_SUMS = {
    "tokens": "stats_tokens",
    "completion_tokens": "stats_completion_tokens",
    "tool_calls": "stats_tool_calls",
    "empty_messages": "quality_empty_messages",
}
_REJECTED = "rejected_"


@dataclass
class _Block:
    """Rows of one file."""

    file: str
    rows: list[tuple[int, dict[str, Any] | Fault]]
    characters: int = 0


def normalise_shard(
    shard: RowShard,
    window: Window,
    folder: BuildFolder,
    origin: RowOrigin,
    settings: RowSettings,
    tokenizer_sha256: str,
    driver: Driver,
    zstd_level: int,
) -> Receipt:
    """Files: the rows, `SCHEMA`, ids not numbered; their ids as `doc_ids` has them; rejects; tools, a line
    `[id, canonical JSON]` each, by id. Counts: `rows` read, `documents`, `rejected/<reason>`, `tokens`,
    `completion_tokens`, `tool_calls`, `empty_messages`, `spot_checked`, and what `NormalisedRows` counts besides.

    Args:
        window: has no part in this: rows aren't known before they are read.
        origin: its file is that of each row's.
    Raises:
        InputError: a file can't be read, or changed since it was planned.
        OracleDisagrees: one row in a thousand, chosen by its id, is held against tiktoken.
    """
    encoder = kept_encoder(tokenizer_sha256, driver)
    counts: Counter[str] = Counter(rows=0, documents=0)
    rejects: list[Reject] = []
    tools: dict[str, str] = {}
    stem = f"{driver}/{shard.name}"
    rows_name, ids_name = f"{WORK}/rows/{stem}.parquet", f"{IDS}/{stem}"
    rejects_name, tools_name = f"{REJECTS}/{stem}{SUFFIX}", f"{WORK}/tools/{stem}{SUFFIX}"
    with (
        no_cycles(),
        ParquetOutput(folder.path(rows_name), SCHEMA, _BLOCK_ROWS) as output,
        IdsWriter(folder.path(ids_name)) as ids,
    ):
        for block in _blocks(shard):
            found = normalise_rows(block.rows, settings, replace(origin, file=block.file), encoder)
            counts["spot_checked"] += _spot_check(found, settings, encoder)
            counts.update(_counts(found))
            ids.add(found.batch.column("id").to_pylist())
            rejects += found.rejects
            tools |= found.tools
            if found.batch.num_rows:
                output.write(pa.Table.from_batches([found.batch], SCHEMA))
            gc.collect(0)
    with JsonlZstWriter(folder.path(tools_name), zstd_level) as writer:
        writer.write_lines(b"".join(msgspec.json.encode(tool) + b"\n" for tool in sorted(tools.items())), len(tools))
    files = [
        output.output(rows_name),
        ids.output(ids_name),
        write_rows(folder.path(rejects_name), rejects_name, [reject.to_json() for reject in rejects], zstd_level),
        writer.output(tools_name),
    ]
    return Receipt(files, dict(counts))


def _blocks(shard: RowShard) -> Iterator[_Block]:
    """Rows in order, cut where a file ends, or where there are enough of them or of their characters."""
    block: _Block | None = None
    parquet = parquet_files(shard.pieces)
    for row in read_shard(shard):
        if block is not None and (
            block.file != row.file or len(block.rows) == _BLOCK_ROWS or block.characters >= _BLOCK_CHARACTERS
        ):
            yield block
            block = None
        block = block or _Block(row.file, [])
        if isinstance(row, SourceRow):
            columns = parquet[row.file].as_json_lines(row.columns) if row.file in parquet else row.columns
            block.rows.append((row.place, columns))
            block.characters += _characters(columns)
        else:
            block.rows.append((row.row, Fault(row.reason, row.detail)))
    if block is not None:
        yield block


def _characters(columns: Mapping[str, object]) -> int:
    """About how long a row is as text."""
    characters = 0
    values: list[object] = [*columns.values()]
    for value in values:
        if isinstance(value, str):
            characters += len(value)
        elif isinstance(value, dict):
            values += value.values()
        elif isinstance(value, list):
            values += value
        else:
            characters += 1
    return characters


def _counts(found: NormalisedRows) -> Counter[str]:
    """In the names that ledgers have, with sums over the rows that are kept."""
    counts: Counter[str] = Counter(rows=found.counts["rows_in"], documents=found.counts["rows_out"])
    for name, count in found.counts.items():
        if name.startswith(_REJECTED):
            counts[f"rejected/{name.removeprefix(_REJECTED)}"] += count
        elif name not in ("rows_in", "rows_out"):
            counts[name] += count
    for name, column in _SUMS.items():
        counts[name] += int(numbers(found.batch.column(column)).sum())
    return counts


def _spot_check(found: NormalisedRows, settings: RowSettings, encoder: Encoder) -> int:
    """How many rows were held against tiktoken."""
    ids = found.batch.column("id").to_pylist()
    sample = [row for row, one in enumerate(ids) if is_spot_checked(one)]
    if sample:
        for row, what in encoding_faults(found.batch, sample, settings.loss, encoder):
            raise OracleDisagrees(f"row {ids[row]}: {what}")
    return len(sample)
