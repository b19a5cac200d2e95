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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from pipeline_assets.corpus.converted_shards import gather_lines
from pipeline_assets.corpus.decontamination.recipe import read_contaminated
from pipeline_assets.corpus.dedup.decision import Decision, read_decisions
from pipeline_assets.corpus.doc_ids import IdsWriter, read_repeats, write_repeats
from pipeline_assets.corpus.document import Document, Meta
from pipeline_assets.corpus.document_shards import REJECTS_FILE, SHARDS
from pipeline_assets.corpus.formats.arrow_columns import mask, nullable, numbers
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, JsonlZstWriter, read_structs
from pipeline_assets.corpus.formats.parquet import ParquetOutput, open_parquet
from pipeline_assets.corpus.harmony import prompt
from pipeline_assets.corpus.harmony.encode import render_harmony
from pipeline_assets.corpus.harmony.message import Analysis, Ending, Role
from pipeline_assets.corpus.harmony.parse import parse_harmony
from pipeline_assets.corpus.nemotron.schema import DROPPED_FILE, SCHEMA, data_files, select_columns
from pipeline_assets.corpus.nemotron.sections import CORRECTNESS
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.engine import RunSettings, limit_workers, run_stage
from pipeline_assets.spine.ledger import Ledger, Reject, dropped_key
from pipeline_assets.spine.stage import Window
from pipeline_assets.spine.staging import WORK, Receipt, StagingDir, StagingView, total_counts

TEXTS = "texts"
_UNKNOWN = -1.0
_BATCH_ROWS = 1024
_QUALITY_COLUMNS = ["quality_valid_harmony", "quality_completion_nonempty", "quality_valid_tool_schema"]
_QUALITY_COLUMNS += ["stats_completion_tokens", "stats_tool_calls"]
_TIE_COLUMNS = [
    "id",
    "meta_domain",
    "meta_license",
    "meta_correctness",
    "meta_formal_statement",
    "source_file",
    "source_row",
]
Row = dict[str, object]


class DroppedRow(msgspec.Struct, frozen=True):
    """A row that goes.

    Attributes:
        file, row: of the source, as rejects have them.
        shard, shard_row: its place among the normalised rows.
    """

    file: str
    row: int
    reason: str
    detail: str
    id: str
    shard: str
    shard_row: int


@dataclass(frozen=True)
class _PromptShard:
    """A file of normalised rows.

    Attributes:
        repeats: says which of the rows that pass have a text that was there before; None before that is known.
    """

    name: str
    path: str
    file: Path
    rows: int = 0  # a file is read whole
    passing: int = 0
    repeats: Path | None = None


@dataclass(frozen=True)
class PromptRules:
    """What decides which rows stay.

    Attributes:
        split: as partitions call it; what Documents are of.
        system: that was put before each rendered conversation.
        min_completion_tokens: fewer than these are next to nothing.
    """

    split: str
    system: prompt.SystemContent | None
    min_completion_tokens: int


def gather_prompts(
    building: StagingDir, rows: Artifact, earlier: Sequence[Artifact], rules: PromptRules, settings: RunSettings
) -> BuildResult:
    """The files above.

    Args:
        rows: normalised, of one split.
        earlier: prompts of splits whose texts count as there before.
    """
    shards = [_PromptShard(f"{number:05d}", path, rows.path(path)) for number, path in enumerate(data_files(rows))]
    settings = limit_workers(building, settings, [shard.file.stat().st_size for shard in shards])
    judged = list(run_stage("judge", functools.partial(evaluate_rows, rules=rules), shards, building, settings))
    before = [
        one.path(file.path)
        for one in earlier
        for file in one.manifest.identity.files
        if file.path.startswith(f"{TEXTS}/")
    ]
    own = [building.path(receipt.files[0].path) for receipt in judged]
    repeats = write_repeats([*before, *own], building)[len(before) :]
    passing = [receipt.counts["passing"] for receipt in judged]
    shards = [
        replace(shard, passing=count, repeats=of_shard)
        for shard, count, of_shard in zip(shards, passing, repeats, strict=True)
    ]
    work = functools.partial(write_prompts, rules=rules, zstd_level=settings.zstd_level)
    written = list(run_stage("prompts", work, shards, building, settings))
    texts = [receipt.files[0].linked(f"{TEXTS}/{Path(receipt.files[0].path).name}", building) for receipt in judged]
    dropped = gather_lines(building, [receipt.files[1] for receipt in written], DROPPED_FILE, settings.zstd_level)
    counts = total_counts(written)
    files = [*(receipt.files[0] for receipt in written), *texts, dropped]
    return BuildResult(files, {"ledger": Ledger.from_counts(counts).to_json(), "documents": counts["documents"]}, {})


def evaluate_rows(shard: _PromptShard, window: Window, folder: StagingView, rules: PromptRules) -> Receipt:
    """Hashes of the texts of the rows that pass, as `document` has ids. Counts: `passing`."""
    name, passing = f"{WORK}/{TEXTS}/{shard.name}", 0
    prefixes = system_prefixes(rules.system)
    with IdsWriter(folder.path(name)) as ids:
        for batch in _batches(shard.file, ["text", *_QUALITY_COLUMNS]):
            texts = [row["text"] for row in batch if dropped_by(row, rules) is None]
            ids.add(without_system(str(text), prefixes) for text in texts)
            passing += len(texts)
    return Receipt([ids.output(name)], {"passing": passing})


def write_prompts(
    shard: _PromptShard, window: Window, folder: StagingView, rules: PromptRules, zstd_level: int
) -> Receipt:
    """Files: the Documents, the rows that go. Counts: `rows`, `documents`, `dropped/<reason>`."""
    name, dropped_name = f"{SHARDS}/{shard.name}{SUFFIX}", f"{WORK}/dropped/{shard.name}{SUFFIX}"
    counts: Counter[str] = Counter(rows=0, documents=0)
    times, shard_row = read_repeats(shard.repeats, shard.passing), 0
    with (
        JsonlZstWriter(folder.path(name), zstd_level) as documents,
        JsonlZstWriter(folder.path(dropped_name), zstd_level) as dropped,
    ):
        for batch in _batches(shard.file, ["text", *_QUALITY_COLUMNS, *_TIE_COLUMNS]):
            kept: list[Document] = []
            for row in batch:
                because = dropped_by(row, rules)
                if because is None and next(times):
                    because = "duplicate_text", "a row before it has the same text"
                if because is None:
                    kept.append(_document(row, rules.split))
                else:
                    counts[dropped_key(because[0])] += 1
                    place = str(row["source_file"]), int(str(row["source_row"]))
                    gone = DroppedRow(*place, *because, str(row["id"]), shard.path, shard_row)
                    dropped.write_lines(_encoder.encode_lines([gone]), 1)
                shard_row += 1
            documents.write_lines(_encoder.encode_lines(kept), len(kept))
            counts.update(rows=len(batch), documents=len(kept))
    return Receipt([documents.output(name), dropped.output(dropped_name)], dict(counts))


def _batches(file: Path, columns: list[str]) -> Iterator[list[Row]]:
    with open_parquet(file) as parquet:
        for batch in parquet.iter_batches(_BATCH_ROWS, columns=columns, use_threads=False):
            yield pa.RecordBatch.to_pylist(batch)


def dropped_by(row: Row, rules: PromptRules) -> tuple[str, str] | None:
    """Why a row goes whatever others say, and what was seen; None of one that may stay."""
    tokens = row["stats_completion_tokens"]
    if not row["quality_valid_harmony"]:
        return "invalid_harmony", "the text is no Harmony"
    if not row["quality_completion_nonempty"] or int(str(tokens)) < rules.min_completion_tokens:
        return "no_completion", f"{tokens} tokens of completion"
    if row["stats_tool_calls"] and row["quality_valid_tool_schema"] is False:
        return "malformed_tool_call", "a call doesn't fit the tools that the row declares"
    return None


def system_prefixes(system: prompt.SystemContent | None) -> tuple[str, ...]:
    """How texts begin that normalising rendered: its system message, without and with the line that tools add."""
    if system is None:
        return ()
    with_tools = prompt.DeveloperContent(None, (prompt.function_namespace([prompt.FunctionTool("any", "", None)]),))
    messages = [prompt.prompt_messages(system, developer)[0] for developer in (None, with_tools)]
    render = functools.partial(render_harmony, analysis=Analysis.KEEP, ending=Ending.CONVERSATION)
    return tuple(render([message]).text for message in messages)


def without_system(text: str, prefixes: Sequence[str]) -> str:
    """A text without the system message that normalising put before it."""
    return next((text[len(prefix) :] for prefix in prefixes if text.startswith(prefix)), text)


def _document(row: Row, split: str) -> Document:
    correctness = row["meta_correctness"]
    columns = {CORRECTNESS: _UNKNOWN if correctness is None else correctness}
    return Document(
        text=extract_prompt(row).replace("\0", ""),
        source=split,
        domain=str(row["meta_domain"]),
        doc_id=f"{split}/{row['id']}",
        license_tag=str(row["meta_license"] or "unknown"),
        created_at="",
        meta=Meta.from_mapping(str(row["source_file"]), int(str(row["source_row"])), columns),
    )


def extract_prompt(row: Row) -> str:
    """What is asked: the statement of a proof, else all that the user says; where that is nothing, the whole text."""
    statement = row["meta_formal_statement"]
    if row["meta_domain"] == "proof" and statement:
        return str(statement)
    messages = parse_harmony(str(row["text"])).conversation
    said = "\n\n".join(message.content for message in messages if message.role is Role.USER)
    return said if said.strip() else str(row["text"])


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
