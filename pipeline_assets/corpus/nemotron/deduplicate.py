"""Which rows of a split go: first for what they say or hold, then because others ask nearly the same.

The stage `nemotron_prompts`: what the rows that stay ask, as Documents that are compared.

    shards/00000.jsonl.zst   a Document for each row that stays, a shard of each file of the split
    texts/00000              hashes of their texts, by which splits that come later know them
    dropped.jsonl.zst        rows that go, and why

A row goes if its text is no Harmony, if it has no completion or next to none, if a call of it doesn't fit the tools
that it declares, or if a row before it has the same text. Texts are compared without the system message that
normalising put before them, and to those of earlier splits too, where the recipe asks for that.

The stage `nemotron_deduplicated`: the rows without those that go, and of each of which other row it is nearly a
duplicate.

    data/<split>-00000-of-0000N.parquet   the rows, `schema.SCHEMA`, in their order and in their files
    dropped.jsonl.zst                     rows that went, and why: what their prompts tell, or that they are near

Near duplicates are prompts that are alike: tagged, or dropped where the recipe says so. A row whose prompt holds an
item of an evaluation set goes before that: it stays in nobody's place.
"""

import functools
import heapq
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from pipeline_assets.corpus.converted_shards import gather_lines
from pipeline_assets.corpus.decontamination.recipe import read_contaminated
from pipeline_assets.corpus.dedup.decision import Decision, read_decisions
from pipeline_assets.corpus.document_shards import REJECTS_FILE
from pipeline_assets.corpus.formats.arrow_columns import mask, nullable, numbers
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, JsonlZstWriter, read_structs
from pipeline_assets.corpus.formats.parquet import ParquetOutput, open_parquet
from pipeline_assets.corpus.nemotron.prompts import DroppedRow
from pipeline_assets.corpus.nemotron.schema import DROPPED_FILE, SCHEMA, data_files, select_columns
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.engine import RunSettings, limit_workers, run_stage
from pipeline_assets.spine.ledger import Ledger, Reject, dropped_key
from pipeline_assets.spine.stage import Window
from pipeline_assets.spine.staging import WORK, Receipt, StagingDir, StagingView, total_counts

_encoder = msgspec.json.Encoder()
_NEAR = "near_duplicate"
_SUMS = {"tokens": "stats_tokens", "completion_tokens": "stats_completion_tokens"}


@dataclass(frozen=True)
class _Shard:
    """A file of normalised rows, and in work files: the rows of it that went, those of its prompts that are refused,
    and decisions on those of the others that are duplicates.
    """

    name: str
    path: str
    file: Path
    dropped: Path
    refused: Path
    decided: Path
    rows: int = 0  # a file is read whole


def deduplicate_split(
    building: StagingDir,
    rows: Artifact,
    prompts: Artifact,
    clean: Artifact | None,
    near: Artifact | None,
    split: str,
    drops: bool,
    settings: RunSettings,
) -> BuildResult:
    """The files above.

    Args:
        rows: normalised, of one split.
        prompts: of the same split.
        clean: those of them that hold no item of an evaluation set; None where nobody looked.
        near: what was decided of these and of others; None where nobody looked.
        split: what decisions call it.
        drops: whether near duplicates go.
    """
    names = {path: f"{number:05d}" for number, path in enumerate(data_files(rows))}
    dropped_before = ((names[one.shard], one) for one in read_structs(prompts.path(DROPPED_FILE), DroppedRow))
    gone = _by_shard(building, "gone", names, dropped_before)
    refused = _by_shard(building, "refused", names, ((_number(one.file), one) for one in _refusals(clean)))
    of_split = () if near is None else (one for one in read_decisions(near) if one.source == split)
    duplicates = ((_number(one.shard), one) for one in of_split if one.decision != "kept")
    decided = _by_shard(building, "decided", names, duplicates)
    shards = [
        _Shard(name, path, rows.path(path), gone[name], refused[name], decided[name]) for path, name in names.items()
    ]
    settings = limit_workers(building, settings, [shard.file.stat().st_size for shard in shards])
    work = functools.partial(deduplicate_rows, drops=drops)
    receipts = list(run_stage("deduplicate", work, shards, building, settings))
    dropped = gather_lines(building, [receipt.files[1] for receipt in receipts], DROPPED_FILE, settings.zstd_level)
    counts = total_counts(receipts)
    told = {name: counts[name] for name in ("documents", *_SUMS, _NEAR)}
    files = [*(receipt.files[0] for receipt in receipts), dropped]
    return BuildResult(files, {"ledger": Ledger.from_counts(counts).to_json(), **told}, {})


def _number(shard: str) -> str:
    """Which file of the split the prompts of a shard are of."""
    return Path(shard).name.removesuffix(SUFFIX).rpartition("-")[2]


def _refusals(clean: Artifact | None) -> Iterator[Reject]:
    """Prompts that aren't left, in order, and why: they hold an evaluation item, or killed who looked for one."""
    if clean is None:
        return
    contaminated = (Reject(one.shard, one.row, one.reason, str(one)) for one in read_contaminated(clean))
    killed = read_structs(clean.path(REJECTS_FILE), Reject)
    yield from heapq.merge(contaminated, killed, key=lambda one: (one.file, one.row))


def _by_shard(
    building: StagingDir, area: str, names: Mapping[str, str], rows: Iterator[tuple[str, msgspec.Struct | Reject]]
) -> dict[str, Path]:
    """Rows, which come shard by shard, in a work file for each; paths by the names of shards."""
    waiting = itertools.groupby(rows, key=lambda row: row[0])
    of_next, paths = next(waiting, None), {}
    for name in names.values():
        paths[name] = building.path(f"{WORK}/{area}/{name}{SUFFIX}")
        with JsonlZstWriter(paths[name], level=1) as writer:
            if of_next is not None and of_next[0] == name:
                for _, one in of_next[1]:
                    writer.write_lines(_encoder.encode_lines([one]), 1)
                of_next = next(waiting, None)
    return paths


def deduplicate_rows(shard: _Shard, window: Window, folder: StagingView, drops: bool) -> Receipt:
    """Files: the rows, those that went. Counts: `rows`, `documents`, `dropped/<reason>`, `near_duplicate` (also those
    that are tagged alone), `tokens`, `completion_tokens`.
    """
    dropped_name = f"{WORK}/dropped/{shard.name}{SUFFIX}"
    counts: Counter[str] = Counter(rows=0, documents=0, **{_NEAR: 0}, **dict.fromkeys(_SUMS, 0))
    findings, first = _findings(shard), 0
    with (
        open_parquet(shard.file) as file,
        ParquetOutput(folder.path(shard.path), SCHEMA, file.metadata.num_rows or 1) as output,
        JsonlZstWriter(folder.path(dropped_name), level=3) as dropped,
    ):
        for group in range(file.num_row_groups):
            table = select_columns(file.read_row_group(group))
            tags: list[Decision | None] = []
            stays = np.ones(table.num_rows, bool)
            for row in range(table.num_rows):
                found = next(findings)
                counts[_NEAR] += isinstance(found, Decision)
                if found is None or (isinstance(found, Decision) and not drops):
                    tags.append(found)
                else:
                    leaves = _dropped(found, table, row, shard.path, first + row)
                    stays[row] = False
                    counts[dropped_key(leaves.reason)] += 1
                    dropped.write_lines(_encoder.encode_lines([leaves]), 1)
            kept = _tagged(table.filter(mask(stays)), tags)
            counts.update(rows=table.num_rows, documents=kept.num_rows)
            counts.update({name: int(numbers(kept[column]).sum()) for name, column in _SUMS.items()})
            if kept.num_rows:  # `datasets` reads no row group without rows
                output.write(kept)
            first += table.num_rows
    return Receipt([output.output(shard.path), dropped.output(dropped_name)], dict(counts))


def _findings(shard: _Shard) -> Iterator[DroppedRow | Reject | Decision | None]:
    """Of each row of a file, in order, without end: that it went, that its prompt is refused, that this is a duplicate;
    None where nothing is found. Prompts are counted without the rows that went, decisions without those refused too.
    """
    gone = {one.shard_row: one for one in read_structs(shard.dropped, DroppedRow)}
    refused = {one.row: one for one in read_structs(shard.refused, Reject)}
    decided = {one.row: one for one in read_structs(shard.decided, Decision)}
    prompts, compared = itertools.count(), itertools.count()
    for row in itertools.count():
        yield gone.get(row) or refused.get(next(prompts)) or decided.get(next(compared))


def _dropped(
    found: DroppedRow | Reject | Decision, table: pa.Table, row: int, shard: str, shard_row: int
) -> DroppedRow:
    if isinstance(found, DroppedRow):
        return found
    if isinstance(found, Decision):
        found = Reject(shard, shard_row, _NEAR, f"{found.duplicate_of}, similarity {found.similarity}")
    file, place, row_id = (table[name][row].as_py() for name in ("source_file", "source_row", "id"))
    return DroppedRow(file, place, found.reason, found.detail, row_id, shard, shard_row)


def _tagged(table: pa.Table, tags: Sequence[Decision | None]) -> pa.Table:
    """Rows with what was decided of each."""
    found: dict[str, list[Any]] = {
        "quality_is_duplicate": [tag is not None for tag in tags],
        "quality_duplicate_of": [None if tag is None else tag.duplicate_of for tag in tags],
        "quality_similarity": [None if tag is None else tag.similarity for tag in tags],
    }
    columns = [
        nullable(found[field.name], field.type) if field.name in found else table[field.name] for field in SCHEMA
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)
