"""Stage `nemotron_prompts`: prompts of a split's usable rows as Documents.

    shards/00000.jsonl.zst   a Document for each kept row, a shard for each file of the split
    texts/00000              hashes of usable texts of a file, for comparison with later splits
    dropped.jsonl.zst        dropped rows with reasons

A row is dropped if `drop_reason` returns a reason, or if an earlier row, possibly of an earlier split, has the same
text. The system message that normalization adds is not compared.
"""

import functools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from pipeline_assets.corpus.chat_templates.marked_text import parse_text, uses_chat_template
from pipeline_assets.corpus.converted_shards import concatenate_lines
from pipeline_assets.corpus.doc_ids import IdsWriter, read_occurrences, write_repeats
from pipeline_assets.corpus.document import Document, Meta
from pipeline_assets.corpus.document_shards import SHARDS_FOLDER
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, JsonlZstWriter
from pipeline_assets.corpus.formats.parquet import StoredParquet
from pipeline_assets.corpus.harmony import prompt
from pipeline_assets.corpus.harmony.encode import render_harmony
from pipeline_assets.corpus.harmony.message import AnalysisMode, Ending, Role
from pipeline_assets.corpus.licences import UNKNOWN
from pipeline_assets.corpus.nemotron.schema import DROPPED_FILE, data_files
from pipeline_assets.corpus.nemotron.sections import CORRECTNESS_KEY
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.engine import RunSettings, limit_workers, run_stage
from pipeline_assets.spine.ledger import Ledger, dropped_key
from pipeline_assets.spine.stage import Window
from pipeline_assets.spine.staging import WORK_FOLDER, Receipt, StagingDir, StagingView, total_counts

TEXT_HASHES_FOLDER = "texts"
_BATCH_ROWS = 1024
_QUALITY_COLUMNS = ["quality_valid_harmony", "quality_completion_nonempty", "quality_valid_tool_schema"]
_QUALITY_COLUMNS += ["stats_completion_tokens", "stats_tool_calls", "template"]
_DOCUMENT_COLUMNS = ["id", "source_file", "source_row", "loss_rule"]
_DOCUMENT_COLUMNS += ["meta_domain", "meta_license", "meta_correctness", "meta_formal_statement"]
_StoredRow = dict[str, Any]


class DropRecord(msgspec.Struct, frozen=True):
    """Dropped row with its reason."""

    file: str  # name of the source file, as in rejects
    row: int  # position in that file
    reason: str
    detail: str
    id: str
    shard: str  # path of the file of normalized rows
    shard_row: int  # number of the row in that file


@dataclass(frozen=True)
class _PromptShard:
    """File of normalized rows; the last two fields are set after `hash_texts`."""

    name: str
    path: str
    file: Path
    rows: int = 0  # the file is always read whole, so the engine does not search it for a poison row
    passing_rows: int = 0  # rows that pass the rules
    repeats_file: Path | None = None  # of `write_repeats` for the texts of these rows; None if no text is a repeat


@dataclass(frozen=True)
class PromptRules:
    """Rules that keep or drop rows."""

    split: str  # partition key, stored as the source of the Documents
    system: prompt.SystemContent | None  # message that normalization added to rendered conversations
    min_completion_tokens: int


def gather_prompts(
    staging: StagingDir, rows: Artifact, earlier_prompts: Sequence[Artifact], rules: PromptRules, settings: RunSettings
) -> BuildResult:
    """Build the prompts of a split's kept rows.

    A row with the text of an earlier row is dropped; the rows of `earlier_prompts` precede all rows of the split.
    """
    shards = [_PromptShard(f"{number:05d}", path, rows.path(path)) for number, path in enumerate(data_files(rows))]
    settings = limit_workers(staging, settings, [shard.file.stat().st_size for shard in shards])
    hashed = list(run_stage("judge", functools.partial(hash_texts, rules=rules), shards, staging, settings))
    earlier_texts = [
        prompts.path(file.path)
        for prompts in earlier_prompts
        for file in prompts.manifest.identity.files
        if file.path.startswith(f"{TEXT_HASHES_FOLDER}/")
    ]
    own_texts = [staging.path(receipt.files[0].path) for receipt in hashed]
    repeats = write_repeats([*earlier_texts, *own_texts], staging)[len(earlier_texts) :]
    passing = [receipt.counts["passing"] for receipt in hashed]
    by_shard = zip(shards, passing, repeats, strict=True)
    shards = [replace(shard, passing_rows=count, repeats_file=path) for shard, count, path in by_shard]
    work = functools.partial(write_prompts, rules=rules, zstd_level=settings.zstd_level)
    written = list(run_stage("prompts", work, shards, staging, settings))
    hash_files = (receipt.files[0] for receipt in hashed)
    texts = [file.link_as(f"{TEXT_HASHES_FOLDER}/{Path(file.path).name}", staging) for file in hash_files]
    dropped = concatenate_lines(staging, [receipt.files[1] for receipt in written], DROPPED_FILE, settings.zstd_level)
    counts = total_counts(written)
    files = [*(receipt.files[0] for receipt in written), *texts, dropped]
    return BuildResult(files, {"ledger": Ledger.from_counts(counts).to_json(), "documents": counts["documents"]}, {})


def hash_texts(shard: _PromptShard, window: Window, folder: StagingView, rules: PromptRules) -> Receipt:
    """Write hashes of the texts of rows that pass the rules, and count these rows."""
    name, passing = f"{WORK_FOLDER}/{TEXT_HASHES_FOLDER}/{shard.name}", 0
    prefixes = system_prefixes(rules.system)
    with IdsWriter(folder.path(name)) as ids:
        for batch in _read_batches(shard.file, ["text", *_QUALITY_COLUMNS]):
            texts = [row["text"] for row in batch if drop_reason(row, rules) is None]
            ids.add(remove_system_message(text, prefixes) for text in texts)
            passing += len(texts)
    return Receipt([ids.output(name)], {"passing": passing})


def write_prompts(
    shard: _PromptShard, window: Window, folder: StagingView, rules: PromptRules, zstd_level: int
) -> Receipt:
    """Write two files: Documents of a shard's kept rows, and its dropped rows."""
    name, dropped_name = f"{SHARDS_FOLDER}/{shard.name}{SUFFIX}", f"{WORK_FOLDER}/dropped/{shard.name}{SUFFIX}"
    counts: Counter[str] = Counter(rows=0, documents=0)
    occurrences, shard_row = read_occurrences(shard.repeats_file, shard.passing_rows), 0
    with (
        JsonlZstWriter(folder.path(name), zstd_level) as documents,
        JsonlZstWriter(folder.path(dropped_name), zstd_level) as dropped,
    ):
        for batch in _read_batches(shard.file, ["text", *_QUALITY_COLUMNS, *_DOCUMENT_COLUMNS]):
            kept: list[Document] = []
            for row in batch:
                reason = drop_reason(row, rules)
                if reason is None and next(occurrences):
                    reason = "duplicate_text", "a row before it has the same text"
                if reason is None:
                    kept.append(_to_document(row, rules.split))
                else:
                    counts[dropped_key(reason[0])] += 1
                    source = row["source_file"], row["source_row"]
                    dropped_row = DropRecord(*source, *reason, row["id"], shard.path, shard_row)
                    dropped.write_rows([dropped_row])
                shard_row += 1
            documents.write_rows(kept)
            counts.update(rows=len(batch), documents=len(kept))
    return Receipt([documents.output(name), dropped.output(dropped_name)], dict(counts))


def _read_batches(file: Path, columns: list[str]) -> Iterator[list[_StoredRow]]:
    with StoredParquet(file) as parquet:
        for batch in parquet.iter_batches(_BATCH_ROWS, columns=columns):
            yield pa.RecordBatch.to_pylist(batch)


def drop_reason(row: _StoredRow, rules: PromptRules) -> tuple[str, str] | None:
    """Return (reason, detail) if the rules drop a row, else None."""
    tokens = row["stats_completion_tokens"]
    if not row["quality_valid_harmony"] and not uses_chat_template(row.get("template")):
        return "invalid_harmony", "the text is no Harmony"
    if not row["quality_completion_nonempty"] or tokens < rules.min_completion_tokens:
        return "no_completion", f"{tokens} tokens of completion"
    if row["stats_tool_calls"] and row["quality_valid_tool_schema"] is False:
        return "malformed_tool_call", "a call doesn't fit the tools that the row declares"
    return None


def system_prefixes(system: prompt.SystemContent | None) -> tuple[str, ...]:
    """Render `system` without and with the line on tools; () if `system` is None."""
    if system is None:
        return ()
    with_tools = prompt.DeveloperContent(None, (prompt.function_namespace([prompt.FunctionTool("any", "", None)]),))
    messages = [prompt.prompt_messages(system, developer)[0] for developer in (None, with_tools)]
    render = functools.partial(render_harmony, analysis=AnalysisMode.KEEP, ending=Ending.CONVERSATION)
    return tuple(render([message]).text for message in messages)


def remove_system_message(text: str, prefixes: Sequence[str]) -> str:
    """Remove the system message from a text that starts with one of `prefixes`."""
    return next((text[len(prefix) :] for prefix in prefixes if text.startswith(prefix)), text)


def _to_document(row: _StoredRow, split: str) -> Document:
    correctness = row["meta_correctness"]
    columns = {CORRECTNESS_KEY: -1.0 if correctness is None else correctness}  # the lowest, if unknown
    return Document(
        text=extract_prompt(row).replace("\0", ""),
        source=split,
        domain=row["meta_domain"],
        doc_id=f"{split}/{row['id']}",
        license_tag=row["meta_license"] or UNKNOWN,
        created_at="",
        meta=Meta.from_mapping(row["source_file"], row["source_row"], columns),
    )


def extract_prompt(row: _StoredRow) -> str:
    """Return a row's prompt: a proof's statement, or else its user messages.

    If the user messages are blank, return the whole text.
    """
    statement = row["meta_formal_statement"]
    if row["meta_domain"] == "proof" and statement:
        return str(statement)
    parsed = parse_text(row["text"], row.get("template"), row.get("loss_rule"))
    questions = "\n\n".join(message.content for message in parsed.conversation if message.role is Role.USER)
    return questions if questions.strip() else str(row["text"])
