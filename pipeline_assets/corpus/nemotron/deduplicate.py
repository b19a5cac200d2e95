"""The rows of a split without those that go, and of each that stays, of which other row it is nearly a duplicate.

    data/<split>-00000-of-0000N.parquet   the rows, `schema.SCHEMA`, in their order and in their files
    dropped.jsonl.zst                     rows that went, and why: what their prompts tell, or that they are near

Near duplicates are prompts that are alike: tagged, or dropped where the recipe says so.
"""

import functools
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa

from pipeline_assets.corpus.dedup.decision import Decision, read_decisions
from pipeline_assets.corpus.document_shards import gather_lines
from pipeline_assets.corpus.formats.arrow import mask, nullable, numbers
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, JsonlZstWriter, read_structs
from pipeline_assets.corpus.formats.parquet import ParquetOutput, open_parquet
from pipeline_assets.corpus.nemotron.prompts import DroppedRow
from pipeline_assets.corpus.nemotron.schema import DROPPED_FILE, SCHEMA, data_files
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.engine import RunSettings, run_stage
from pipeline_assets.corpus.spine.ledger import Ledger, dropped_key
from pipeline_assets.corpus.spine.sealing import WORK
from pipeline_assets.corpus.spine.staging import BuildFolder, Receipt, StagingDir, total_counts
from pipeline_assets.corpus.spine.target import BuildResult
from pipeline_assets.corpus.spine.worker import Window

_gone, _decision = msgspec.json.Decoder(DroppedRow), msgspec.json.Decoder(Decision)
_NEAR = "near_duplicate"
_SUMS = {"tokens": "stats_tokens", "completion_tokens": "stats_completion_tokens"}


@dataclass(frozen=True)
class _Shard:
    """A file of normalised rows; the rows of it that went, and decisions on those of the others that are duplicates,
    in work files.
    """

    name: str
    path: str
    file: Path
    gone: Path
    decided: Path
    rows: int = 0  # a file is read whole


def deduplicate_split(
    building: StagingDir,
    rows: Artifact,
    prompts: Artifact,
    near: Artifact | None,
    split: str,
    drops: bool,
    settings: RunSettings,
) -> BuildResult:
    """The files above.

    Args:
        rows: normalised, of one split.
        prompts: of the same split.
        near: what was decided of them and of others; None where nobody looked.
        split: what decisions call it.
        drops: whether near duplicates go.
    """
    names = {path: f"{number:05d}" for number, path in enumerate(data_files(rows))}
    gone = _by_shard(
        building, "gone", names, ((names[one.shard], one) for one in read_structs(prompts.path(DROPPED_FILE), _gone))
    )
    of_split = () if near is None else (one for one in read_decisions(near) if one.source == split)
    duplicates = ((Path(one.shard).name.removesuffix(SUFFIX), one) for one in of_split if one.decision != "kept")
    decided = _by_shard(building, "decided", names, duplicates)
    shards = [_Shard(name, path, rows.path(path), gone[name], decided[name]) for path, name in names.items()]
    work = functools.partial(deduplicate_rows, has_looked=near is not None, drops=drops)
    receipts = list(run_stage("deduplicate", work, shards, building, settings))
    dropped = gather_lines(building, [receipt.files[1] for receipt in receipts], DROPPED_FILE, settings.zstd_level)
    counts = total_counts(receipts)
    told = {name: counts[name] for name in ("documents", *_SUMS, _NEAR)}
    files = [*(receipt.files[0] for receipt in receipts), dropped]
    return BuildResult(files, {"ledger": Ledger.of(counts).to_json(), **told}, {})


def _by_shard(
    building: StagingDir, area: str, names: Mapping[str, str], rows: Iterator[tuple[str, msgspec.Struct]]
) -> dict[str, Path]:
    """Rows, which come shard by shard, in a work file for each; paths by the names of shards."""
    waiting = itertools.groupby(rows, key=lambda row: row[0])
    of_next, paths = next(waiting, None), {}
    for name in names.values():
        paths[name] = building.path(f"{WORK}/{area}/{name}{SUFFIX}")
        with JsonlZstWriter(paths[name], level=1) as writer:
            if of_next is not None and of_next[0] == name:
                for _, one in of_next[1]:
                    writer.write_lines(msgspec.json.encode(one) + b"\n", 1)
                of_next = next(waiting, None)
    return paths


def deduplicate_rows(shard: _Shard, window: Window, folder: BuildFolder, has_looked: bool, drops: bool) -> Receipt:
    """Files: the rows, those that went. Counts: `rows`, `documents`, `dropped/<reason>`, `near_duplicate` (also those
    that are tagged alone), `tokens`, `completion_tokens`.

    Args:
        window: has no part in this: a file is read whole.
        has_looked: whether anybody looked for near duplicates.
    """
    dropped_name = f"{WORK}/dropped/{shard.name}{SUFFIX}"
    counts: Counter[str] = Counter(rows=0, documents=0, **{_NEAR: 0}, **dict.fromkeys(_SUMS, 0))
    gone = {one.shard_row: one for one in read_structs(shard.gone, _gone)}
    decided = {one.row: one for one in read_structs(shard.decided, _decision)}
    first = number = 0  # of the shard; of those that have a prompt
    with (
        open_parquet(shard.file) as file,
        ParquetOutput(folder.path(shard.path), SCHEMA, file.metadata.num_rows or 1) as output,
        JsonlZstWriter(folder.path(dropped_name), level=3) as dropped,
    ):
        for group in range(file.num_row_groups):
            table: pa.Table = file.read_row_group(group)
            tags: list[Decision | None] = []
            stays = np.ones(table.num_rows, bool)
            for row in range(table.num_rows):
                leaves = gone.get(first + row)
                if leaves is None:
                    decision = decided.get(number)
                    number += 1
                    counts[_NEAR] += decision is not None
                    if drops and decision is not None:
                        leaves = _near_row(table, row, shard.path, first + row, decision)
                if leaves is None:
                    tags.append(decision)
                else:
                    stays[row] = False
                    counts[dropped_key(leaves.reason)] += 1
                    dropped.write_lines(msgspec.json.encode(leaves) + b"\n", 1)
            kept = _tagged(table.filter(mask(stays)), tags, has_looked)
            counts.update(rows=table.num_rows, documents=kept.num_rows)
            counts.update({name: int(numbers(kept[column]).sum()) for name, column in _SUMS.items()})
            if kept.num_rows:  # `datasets` reads no row group without rows
                output.write(kept)
            first += table.num_rows
    return Receipt([output.output(shard.path), dropped.output(dropped_name)], dict(counts))


def _near_row(table: pa.Table, row: int, shard: str, shard_row: int, decision: Decision) -> DroppedRow:
    file, place, row_id = (table[name][row].as_py() for name in ("source_file", "source_row", "id"))
    detail = f"{decision.duplicate_of}, similarity {decision.similarity}"
    return DroppedRow(file, place, _NEAR, detail, row_id, shard, shard_row)


def _tagged(table: pa.Table, tags: Sequence[Decision | None], has_looked: bool) -> pa.Table:
    """Rows with what was decided of each."""
    found = {
        "quality_is_duplicate": [tag is not None for tag in tags] if has_looked else [None] * len(tags),
        "quality_duplicate_of": [None if tag is None else tag.duplicate_of for tag in tags],
        "quality_similarity": [None if tag is None else tag.similarity for tag in tags],
    }
    columns = [
        nullable(found[field.name], field.type) if field.name in found else table[field.name] for field in SCHEMA
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)
