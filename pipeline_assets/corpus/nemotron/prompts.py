"""Prompts of kept rows."""

import functools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import pyarrow as pa

from pipeline_assets.corpus.converted_shards import gather_lines
from pipeline_assets.corpus.doc_ids import IdsWriter, read_repeats, write_repeats
from pipeline_assets.corpus.document import Document, Meta
from pipeline_assets.corpus.document_shards import SHARDS
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, JsonlZstWriter
from pipeline_assets.corpus.formats.parquet import open_parquet
from pipeline_assets.corpus.harmony import prompt
from pipeline_assets.corpus.harmony.encode import render_harmony
from pipeline_assets.corpus.harmony.message import Analysis, Ending, Role
from pipeline_assets.corpus.harmony.parse import parse_harmony
from pipeline_assets.corpus.nemotron.schema import DROPPED_FILE, data_files
from pipeline_assets.corpus.nemotron.sections import CORRECTNESS
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.engine import RunSettings, limit_workers, run_stage
from pipeline_assets.spine.ledger import Ledger, dropped_key
from pipeline_assets.spine.stage import Window
from pipeline_assets.spine.staging import WORK, Receipt, StagingDir, StagingView, total_counts

TEXTS = "texts"
_encoder = msgspec.json.Encoder()
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
