"""Stage `nemotron_deduplicated`: kept rows of a split.

    data/<split>-00000-of-0000N.parquet   kept rows (`schema.SCHEMA`), one file for each file of normalized rows
    dropped.jsonl.zst                     dropped rows with reasons, including rows that the prompts stage dropped

Near duplicates have similar prompts. They are tagged, or dropped if the recipe requests it. A row whose prompt contains
an item of an evaluation set is dropped before the search for near duplicates, so it is never the kept row of a group.
"""

import functools
import heapq
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline_assets.corpus.converted_shards import concatenate_lines
from pipeline_assets.corpus.decontamination.recipe import read_contaminated
from pipeline_assets.corpus.dedup.decision import Decision, read_decisions
from pipeline_assets.corpus.document_shards import REJECTS_FILE
from pipeline_assets.corpus.formats.arrow_columns import bool_column, to_numpy
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, JsonlZstWriter, read_structs
from pipeline_assets.corpus.formats.parquet import ParquetOutput, StoredParquet
from pipeline_assets.corpus.formats.python_columns import to_column
from pipeline_assets.corpus.nemotron.prompts import DropRecord
from pipeline_assets.corpus.nemotron.schema import DROPPED_FILE, SCHEMA, data_files, select_columns
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.engine import RunSettings, limit_workers, run_stage
from pipeline_assets.spine.ledger import Ledger, dropped_key
from pipeline_assets.spine.rejects import Reject
from pipeline_assets.spine.stage import Window
from pipeline_assets.spine.staging import WORK_FOLDER, Receipt, StagingDir, StagingView, total_counts

_NEAR_DUPLICATE = "near_duplicate"
_SUMMED_COLUMNS = {"tokens": "stats_tokens", "completion_tokens": "stats_completion_tokens"}


@dataclass(frozen=True)
class _SplitShard:
    """File of normalized rows, and work files with decisions of earlier stages."""

    name: str
    path: str  # of the file in the artifact, and of its kept rows in the output
    file: Path
    dropped_file: Path  # rows that the prompts stage dropped
    contaminated_file: Path  # prompts that decontamination removed
    decisions_file: Path  # duplicates among the remaining prompts
    rows: int = 0  # the file is always read whole, so the engine does not search it for a poison row


def deduplicate_split(
    staging: StagingDir,
    rows: Artifact,
    prompts: Artifact,
    decontaminated: Artifact | None,
    near_duplicates: Artifact | None,
    split: str,
    drops_near_duplicates: bool,
    settings: RunSettings,
) -> BuildResult:
    """Build the kept rows of a split.

    `decontaminated` and `near_duplicates` are each None if the step that builds the artifact was skipped. Prompts of
    other splits, which `near_duplicates` may have, are ignored. Near duplicates are tagged, or dropped if
    `drops_near_duplicates`.
    """
    names = {path: f"{number:05d}" for number, path in enumerate(data_files(rows))}
    dropped_rows = ((names[row.shard], row) for row in read_structs(prompts.path(DROPPED_FILE), DropRecord))
    refused_prompts = ((_shard_number(row.file), row) for row in _removed_prompts(decontaminated))
    decisions = () if near_duplicates is None else read_decisions(near_duplicates)
    near = (row for row in decisions if row.source == split and row.decision != "kept")
    duplicates = ((_shard_number(row.shard), row) for row in near)
    earlier = {"gone": dropped_rows, "refused": refused_prompts, "decided": duplicates}
    work_files = [_write_by_shard(staging, folder, names.values(), found) for folder, found in earlier.items()]
    shards = [
        _SplitShard(name, path, rows.path(path), *files)
        for (path, name), *files in zip(names.items(), *work_files, strict=True)
    ]
    settings = limit_workers(staging, settings, [shard.file.stat().st_size for shard in shards])
    work = functools.partial(deduplicate_rows, drops_near_duplicates=drops_near_duplicates)
    receipts = list(run_stage("deduplicate", work, shards, staging, settings))
    dropped = concatenate_lines(staging, [receipt.files[1] for receipt in receipts], DROPPED_FILE, settings.zstd_level)
    counts = total_counts(receipts)
    totals = {name: counts[name] for name in ("documents", *_SUMMED_COLUMNS, _NEAR_DUPLICATE)}
    files = [*(receipt.files[0] for receipt in receipts), dropped]
    return BuildResult(files, {"ledger": Ledger.from_counts(counts).to_json(), **totals}, {})


def _shard_number(path: str) -> str:
    """Return the five digits in a prompt shard's name: the number of its file of rows."""
    return Path(path).name.removesuffix(SUFFIX).rpartition("-")[2]


def _removed_prompts(decontaminated: Artifact | None) -> Iterator[Reject]:
    """Yield prompts that decontamination dropped or rejected, sorted by shard and row."""
    if decontaminated is None:
        return
    contaminated = (Reject(row.shard, row.row, row.reason, str(row)) for row in read_contaminated(decontaminated))
    poison_rows = read_structs(decontaminated.path(REJECTS_FILE), Reject)
    yield from heapq.merge(contaminated, poison_rows, key=lambda row: (row.file, row.row))


def _write_by_shard(
    staging: StagingDir, folder_name: str, shard_numbers: Iterable[str], rows: Iterable[tuple[str, object]]
) -> Iterator[Path]:
    """Write and yield a work file per shard; `rows` must be sorted by shard number."""
    waiting = itertools.groupby(rows, key=lambda row: row[0])
    group = next(waiting, None)
    for name in shard_numbers:
        path = staging.path(f"{WORK_FOLDER}/{folder_name}/{name}{SUFFIX}")
        with JsonlZstWriter(path, zstd_level=1) as writer:
            if group is not None and group[0] == name:
                for _, row in group[1]:
                    writer.write_rows([row])
                group = next(waiting, None)
        yield path


def deduplicate_rows(shard: _SplitShard, window: Window, folder: StagingView, drops_near_duplicates: bool) -> Receipt:
    """Write two files: a shard's kept rows, which may be tagged, and its dropped rows."""
    dropped_name = f"{WORK_FOLDER}/dropped/{shard.name}{SUFFIX}"
    counts: Counter[str] = Counter(rows=0, documents=0, **{_NEAR_DUPLICATE: 0}, **dict.fromkeys(_SUMMED_COLUMNS, 0))
    decisions, first = _earlier_decisions(shard), 0
    with (
        StoredParquet(shard.file) as file,
        ParquetOutput(folder.path(shard.path), SCHEMA, file.metadata.num_rows or 1) as output,
        JsonlZstWriter(folder.path(dropped_name), zstd_level=3) as dropped,
    ):
        for table in map(select_columns, file.iter_row_groups()):
            tags: list[Decision | None] = []
            is_kept = np.ones(table.num_rows, bool)
            for row in range(table.num_rows):
                decision = next(decisions)
                counts[_NEAR_DUPLICATE] += isinstance(decision, Decision)  # tagged rows too
                if decision is None or (isinstance(decision, Decision) and not drops_near_duplicates):
                    tags.append(decision)
                else:
                    dropped_row = _to_dropped_row(decision, table, row, shard.path, first + row)
                    is_kept[row] = False
                    counts[dropped_key(dropped_row.reason)] += 1
                    dropped.write_rows([dropped_row])
            kept = _tag_duplicates(table.filter(bool_column(is_kept)), tags)
            counts.update(rows=table.num_rows, documents=kept.num_rows)
            counts.update({name: int(to_numpy(kept[column]).sum()) for name, column in _SUMMED_COLUMNS.items()})
            if kept.num_rows:  # `datasets` cannot read an empty row group
                output.write(kept)
            first += table.num_rows
    return Receipt([output.output(shard.path), dropped.output(dropped_name)], dict(counts))


def _earlier_decisions(shard: _SplitShard) -> Iterator[DropRecord | Reject | Decision | None]:
    """Yield, for each row of a file, the decision of an earlier stage, or None.

    After the last row, yield None without end. The three files number rows differently: `dropped_file` counts all rows,
    `contaminated_file` only rows that are not in `dropped_file`, and `decisions_file` only rows in neither of the two.
    """
    dropped = {row.shard_row: row for row in read_structs(shard.dropped_file, DropRecord)}
    refused = {row.row: row for row in read_structs(shard.contaminated_file, Reject)}
    decided = {row.row: row for row in read_structs(shard.decisions_file, Decision)}
    prompts, compared = itertools.count(), itertools.count()
    for row in itertools.count():
        yield dropped.get(row) or refused.get(next(prompts)) or decided.get(next(compared))


def _to_dropped_row(
    decision: DropRecord | Reject | Decision, table: pa.Table, table_row: int, shard_path: str, shard_row: int
) -> DropRecord:
    if isinstance(decision, DropRecord):
        return decision
    if isinstance(decision, Decision):
        detail = f"{decision.duplicate_of}, similarity {decision.similarity}"
        decision = Reject(shard_path, shard_row, _NEAR_DUPLICATE, detail)
    file, position, row_id = (table[name][table_row].as_py() for name in ("source_file", "source_row", "id"))
    return DropRecord(file, position, decision.reason, decision.detail, row_id, shard_path, shard_row)


def _tag_duplicates(table: pa.Table, decisions: Sequence[Decision | None]) -> pa.Table:
    """Fill the columns on near duplicates; `decisions` has one entry for each row."""
    values: dict[str, list[Any]] = {
        "quality_is_duplicate": [decision is not None for decision in decisions],
        "quality_duplicate_of": [None if decision is None else decision.duplicate_of for decision in decisions],
        "quality_similarity": [None if decision is None else decision.similarity for decision in decisions],
    }
    for name, column in values.items():
        field = SCHEMA.field(name)
        table = table.set_column(SCHEMA.get_field_index(name), field, to_column(column, field.type))
    return table
