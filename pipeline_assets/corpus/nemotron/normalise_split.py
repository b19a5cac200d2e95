"""Stage `nemotron_normalise`: normalized rows of a split as Parquet files.

    data/<split>-00000-of-0000N.parquet   rows, `schema.SCHEMA`, in source order
    <split>__tools_catalog.json           lists of tools by the id in `source_tools_id`
    rejects.jsonl.zst                     unusable rows with reasons
    dropped.jsonl.zst                     dropped rows with reasons, in the same form

Repeated ids are numbered over the whole split. Neither the number of workers nor an interruption changes the bytes.
"""

import functools
import heapq
import importlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pipeline_assets.corpus.chat_templates.template import ChatTemplateFiles, load_template
from pipeline_assets.corpus.converted_shards import concatenate_lines, read_rejects
from pipeline_assets.corpus.doc_ids import read_occurrences, write_repeats
from pipeline_assets.corpus.document_shards import REJECTS_FILE
from pipeline_assets.corpus.formats.arrow_columns import string_column
from pipeline_assets.corpus.formats.jsonl_zst import read_structs
from pipeline_assets.corpus.formats.parquet import ParquetOutput, StoredParquet
from pipeline_assets.corpus.harmony.message import CONTROL_TOKENS
from pipeline_assets.corpus.nemotron.dataset_section import Domain, RowOrigin
from pipeline_assets.corpus.nemotron.normalise_shard import NESTED_COUNT_KEYS, merge_rare_keys, normalise_shard
from pipeline_assets.corpus.nemotron.rows_recipe import RowsRecipe
from pipeline_assets.corpus.nemotron.schema import DATA_FOLDER, DROPPED_FILE, SCHEMA
from pipeline_assets.corpus.nemotron.seed_prompts import write_seed_prompts
from pipeline_assets.corpus.nemotron.source_rows import RowShard, empty_sample_error, plan_shards
from pipeline_assets.corpus.nemotron.splits import DEFAULT_CONFIG
from pipeline_assets.corpus.readers.row_positions import reject_formatter
from pipeline_assets.corpus.readers.source_folder import SourceFile
from pipeline_assets.corpus.removals import NO_REMOVALS, Removals, RowKeys
from pipeline_assets.corpus.tokens.encode import warm_up_tokenizer, with_oracle_fallback
from pipeline_assets.corpus.tokens.families import TokenizerFile
from pipeline_assets.corpus.tokens.o200k_harmony import Driver
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.durable import DurableFile
from pipeline_assets.spine.engine import RunSettings, limit_workers, run_stage
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.ledger import Ledger, check_rejects
from pipeline_assets.spine.manifest import Identity
from pipeline_assets.spine.rejects import Reject, RejectFormatter, summarize_reasons
from pipeline_assets.spine.stage import WarmUp, Window
from pipeline_assets.spine.staging import WORK_FOLDER, OutputFile, Receipt, StagingDir, StagingView, total_counts
from pipeline_assets.spine.task import Task, run_task

_ROW_BYTES = 20_000  # approximate size of a row as a JSON line


def row_origin(pin_identity: Identity, subset: str | None, domain: Domain) -> RowOrigin:
    """Return the origin of a split's rows, with an empty `file`.

    If `subset` is None, the origin's subset is the card's config that has the split, or else `default`.
    """
    subset, split = subset or pin_identity.decisions.get("config") or DEFAULT_CONFIG, pin_identity.recipe
    return RowOrigin(split["dataset"], subset, split["split"], domain, "", split.get("revision"))


def normalise_split(
    staging: StagingDir,
    files: Sequence[SourceFile],
    origin: RowOrigin,
    rules: RowsRecipe,
    settings: RunSettings,
    removals: Removals = NO_REMOVALS,
    seed_sets: Sequence[tuple[str, Sequence[SourceFile]]] = (),
    template_files: ChatTemplateFiles | None = None,
) -> BuildResult:
    """Build the normalized rows of a split; `origin.file` is ignored.

    Withheld prompts are restored from `seed_sets`, see `write_seed_prompts`. `template_files` has the files of the chat
    template in `rules`; None if `rules.template` is a Harmony template. If gigatoken and tiktoken disagree on a sampled
    row, tiktoken encodes all rows again. Raise InputError for too many rejects, an empty sample or no kept row.
    """
    seed_prompts = staging.path(f"{WORK_FOLDER}/seed_prompts.sqlite") if seed_sets else None
    if seed_prompts is not None:
        write_seed_prompts(seed_prompts, seed_sets)
    shards = plan_shards(files, rules.shard_bytes, rules.max_rows)
    limited = limit_workers(staging, settings, [sum(piece.bytes for piece in shard.pieces) for shard in shards])
    rows = rules.max_rows or sum(file.bytes for file in files) // _ROW_BYTES

    def normalise(tokenizer: TokenizerFile) -> tuple[Driver, list[Receipt]]:
        work = functools.partial(
            normalise_shard,
            origin=origin,
            rules=rules,
            tokenizer=tokenizer,
            zstd_level=settings.zstd_level,
            seed_prompts=seed_prompts,
            template_files=template_files,
        )
        warm_up: WarmUp = functools.partial(warm_up_tokenizer, tokenizer, rows, controls=CONTROL_TOKENS)
        if template_files is not None:
            warm_up = functools.partial(load_template, template_files)
        stage = f"normalize-{tokenizer.driver}"
        return tokenizer.driver, _normalise_shards(stage, shards, work, staging, limited, warm_up, removals)

    driver, receipts = with_oracle_fallback(TokenizerFile(rules.tokenizer, settings.vocabulary), normalise)
    counts = merge_rare_keys(total_counts(receipts))
    _check_counts(staging, receipts, counts, rules, reject_formatter(files))
    outputs = [
        *_store_rows(staging, receipts, origin.split, limited),
        _write_catalogue(staging, receipts, f"{origin.split}__tools_catalog.json"),
        concatenate_lines(staging, [receipt.files[2] for receipt in receipts], REJECTS_FILE, settings.zstd_level),
        concatenate_lines(staging, [receipt.files[4] for receipt in receipts], DROPPED_FILE, settings.zstd_level),
    ]
    internal = ("rows", "spot_checked")
    totals = {name: count for name, count in counts.items() if name not in internal and "/" not in name}
    by_name = {kind: nested for kind in NESTED_COUNT_KEYS if (nested := _nested_counts(counts, kind))}
    rendered_by, library = (rules.template, driver) if template_files is None else (template_files.name, "tokenizers")
    decisions = {"template": str(rendered_by), "analysis": str(rules.analysis), "loss_rule": rules.loss_mode.rule}
    ledger = {"ledger": Ledger.from_counts(counts).to_json()}
    return BuildResult(outputs, ledger | totals | by_name, decisions, provenance={"tokenizer_driver": library})


def _normalise_shards(
    stage: str,
    shards: Sequence[RowShard],
    work: Callable[..., Receipt],
    staging: StagingDir,
    settings: RunSettings,
    warm_up: WarmUp,
    removals: Removals,
) -> list[Receipt]:
    """Normalize shards, leaving out the rows that are on the removal list.

    A shard with such rows is normalized twice: the first pass finds them, the second omits them.
    """
    receipts = list(run_stage(stage, work, shards, staging, settings, warm_up))
    listed = [_has_listed_row(staging.path(receipt.files[0].path), removals) for receipt in receipts]
    changed = [*itertools.compress(shards, listed)]
    if not changed:
        return receipts
    again = [replace(shard, name=f"{shard.name}.remaining") for shard in changed]
    work = functools.partial(work, removals=removals)
    remaining = iter(list(run_stage(stage, work, again, staging, settings, warm_up)))
    if settings.kept_work is not None:
        settings.kept_work.discard(shard.name for shard in changed)
    return [next(remaining) if found else receipt for receipt, found in zip(receipts, listed, strict=True)]


def _has_listed_row(path: Path, removals: Removals) -> bool:
    """Check whether any row of a shard is on the removal list."""
    if not removals.entries:
        return False
    with StoredParquet(path) as file:
        batches = file.iter_batches(256, columns=["id", "text"])  # some rows have megabytes
        rows = (RowKeys(row["id"], (row["text"],)) for batch in batches for row in batch.to_pylist())
        return any(map(removals.matches, rows))


def _nested_counts(counts: Mapping[str, int], key: str) -> dict[str, int]:
    """Return the counts whose names begin with `key/`, by the rest of the name."""
    return {name.removeprefix(f"{key}/"): count for name, count in counts.items() if name.startswith(f"{key}/")}


def _check_counts(
    staging: StagingDir,
    receipts: Sequence[Receipt],
    counts: Mapping[str, int],
    rules: RowsRecipe,
    formatter: RejectFormatter,
) -> None:
    """Raise `InputError` for too many rejects, an empty sample or no kept row."""
    rejected = Ledger.from_counts(counts).total_rejected
    rows = counts.get("rows", 0)
    check_rejects(rejected, rows, rules.max_reject_fraction, read_rejects(staging, receipts), staging.target, formatter)
    if rules.max_rows is not None and not rows:
        raise empty_sample_error(rules.max_rows, staging.target)
    if not rows:
        raise InputError("the files have no rows", staging.target, "add rows, or omit the split")
    if not counts.get("documents"):
        dropped = [read_structs(staging.path(receipt.files[4].path), Reject) for receipt in receipts]
        reasons, example = summarize_reasons(itertools.chain(read_rejects(staging, receipts), *dropped), formatter)
        what = f"none of {rows:,} rows has a usable conversation: {reasons} (the first: {example})"
        raise InputError(what, staging.target, "check these rows, or omit the split")


def _store_rows(
    staging: StagingDir, receipts: Sequence[Receipt], split: str, settings: RunSettings
) -> list[OutputFile]:
    """Store shards under their final names; rewrite only shards with a repeated id."""
    repeats = write_repeats([staging.path(receipt.files[1].path) for receipt in receipts], staging)
    finals = [f"{DATA_FOLDER}/{split}-{number:05d}-of-{len(receipts):05d}.parquet" for number in range(len(receipts))]
    files = [receipt.files[0] for receipt in receipts]
    tasks = [
        Task(f"{number:05d}", file.rows, functools.partial(number_ids, staging.path(file.path), final, shard_repeats))
        for number, (file, final, shard_repeats) in enumerate(zip(files, finals, repeats, strict=True))
        if shard_repeats is not None
    ]
    warm_up = functools.partial(importlib.import_module, __name__)
    rewritten = run_stage("number_ids", run_task, tasks, staging, settings, warm_up) if tasks else ()
    outputs = {receipt.files[0].path: receipt.files[0] for receipt in rewritten}
    return [outputs.get(final) or file.link_as(final, staging) for file, final in zip(files, finals, strict=True)]


def number_ids(path: Path, final_path: str, repeats_file: Path, window: Window, folder: StagingView) -> Receipt:
    """Append `#2`, `#3`, … to the repeated ids of a shard; keep its row groups."""
    with StoredParquet(path) as file, ParquetOutput(folder.path(final_path), SCHEMA, file.metadata.num_rows) as output:
        times = read_occurrences(repeats_file, file.metadata.num_rows)
        for table in file.iter_row_groups():
            numbered = zip(table["id"].to_pylist(), itertools.islice(times, table.num_rows), strict=True)
            ids = [f"{row_id}#{nth}" if nth else row_id for row_id, nth in numbered]
            output.write(table.set_column(0, SCHEMA.field("id"), string_column(ids)))
    return Receipt([output.output(final_path)], {})


def _write_catalogue(staging: StagingDir, receipts: Sequence[Receipt], name: str) -> OutputFile:
    """Write a JSON object of all tool lists, sorted by id, with one line per list."""
    merged = heapq.merge(*(read_structs(staging.path(receipt.files[3].path), tuple[str, str]) for receipt in receipts))
    tools = (next(group) for _, group in itertools.groupby(merged, key=lambda tool: tool[0]))
    lists = 0
    with DurableFile(staging.path(name)) as file:
        file.write(b"{")
        for tools_id, canonical in tools:
            file.write(f'{"," if lists else ""}\n"{tools_id}": {canonical}'.encode())
            lists += 1
        file.write(b"\n}\n")
    return OutputFile.uncompressed(name, lists, file)
