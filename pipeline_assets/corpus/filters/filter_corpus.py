"""Stage `filter`, which splits a corpus into kept and dropped documents."""

import contextlib
import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pipeline_assets.corpus import document_lines, document_shards, sealed_shards
from pipeline_assets.corpus.converted_shards import concatenate_lines, read_rejects
from pipeline_assets.corpus.document import Document
from pipeline_assets.corpus.filters import verdict
from pipeline_assets.corpus.filters.column_rules import ColumnRule
from pipeline_assets.corpus.filters.filter import Candidate, Measurement
from pipeline_assets.corpus.filters.recipe import WITHOUT_URL, FilterRecipe, keeps_all_documents
from pipeline_assets.corpus.filters.step_process import StepProcess
from pipeline_assets.corpus.formats.jsonl_rows import read_line
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, JsonlZstWriter, write_rows
from pipeline_assets.corpus.partial_documents import RAW_DECODER, add_columns, decode_columns, encode_with_text
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.engine import RunSettings, limit_workers, stage_runner
from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.spine.ledger import Ledger, check_rejects, count_rejects, dropped_key
from pipeline_assets.spine.rejects import Reject
from pipeline_assets.spine.stage import KILLED_WORKER, Window, no_warm_up
from pipeline_assets.spine.staging import WORK_FOLDER, Receipt, StagingDir, StagingView, total_counts
from pipeline_assets.spine.task import Task, run_task

if TYPE_CHECKING:
    from pipeline_assets.corpus.dedup.repeated_windows import ShardRepeats  # loads compiled code

STEP_SECONDS = "step_seconds"  # note of receipts, and key of the provenance
_SCORED_PREFIX, _SCORE_BINS = "scored/", 20  # bins of equal width from 0 to 1


def filter_shard(
    shard: document_shards.DocumentShard,
    window: Window,
    folder: StagingView,
    recipe: FilterRecipe,
    zstd_level: int,
    refused_licences: frozenset[str] = frozenset(),
    repeated_shares: Mapping[int, float] = MappingProxyType({}),
) -> Receipt:
    """Filter the documents of a shard; copy unchanged documents byte for byte.

    Documents with a license tag in `refused_licences` are dropped before any filter runs. If the recipe has `windows`,
    the rows in `repeated_shares` are dropped, too: `repeated_shares` maps each row that repeats earlier documents to
    its share of repeated windows. If every document is kept unchanged, the output shard is a link to the input shard.

    The files are the kept documents, a `DroppedDocument` per dropped document, and rejects: poison rows, and documents
    that the recipe's custom step rejects.

    Counts in the receipt: `rows` (read), `documents` (kept), `bytes` (kept texts), `changed` (kept documents with
    changes), `dropped/<reason>` (documents), `rejected/<reason>`, `scored/<column>/<bin>` (scores, even of dropped
    documents), and the counts in `Candidate.changes`, summed over the kept documents.

    The note `STEP_SECONDS` is the time that the custom step took; it is missing without a custom step.
    """
    counts = Counter({"rows": 0, "documents": 0, "bytes": 0, "changed": 0})
    rejects: list[Reject] = []
    kept_name = f"{document_shards.SHARDS_FOLDER}/{shard.name}{SUFFIX}"
    dropped_name, rejects_name = (f"{WORK_FOLDER}/{area}/{shard.name}{SUFFIX}" for area in ("dropped", "rejects"))
    with (
        JsonlZstWriter(folder.path(kept_name), zstd_level) as kept_writer,
        JsonlZstWriter(folder.path(dropped_name), zstd_level) as dropped_writer,
        contextlib.ExitStack() as stack,
    ):
        step = None if recipe.python is None else stack.enter_context(contextlib.closing(StepProcess(recipe.python)))
        for lines, poison_rows in document_lines.read_lines(shard, window):
            counts["rows"] += len(lines) + len(poison_rows)
            rejects += [Reject(shard.path, row, KILLED_WORKER) for row in poison_rows]
            rejects += _filter_lines(
                lines, shard, recipe, refused_licences, repeated_shares, kept_writer, dropped_writer, counts, step
            )
    counts["documents"] = kept_writer.rows
    counts.update(count_rejects(rejects))
    rejected = write_rows(folder.path(rejects_name), rejects_name, [reject.to_json() for reject in rejects], zstd_level)
    kept_file = sealed_shards.link_if_equal(kept_writer.output(kept_name), shard, folder)
    notes = {} if step is None else {STEP_SECONDS: step.seconds}
    return Receipt([kept_file, dropped_writer.output(dropped_name), rejected], dict(counts), notes=notes)


def load_filters(recipe: FilterRecipe) -> None:
    """Load the tables and compiled code of `filter_shard` into this process."""
    if recipe.windows is not None:
        from pipeline_assets.corpus.dedup.repeated_windows import load_kernels

        load_kernels()
    columns = {ColumnRule.parse(rule).column: None for rule in recipe.rules}
    verdict.evaluate("Some text. mail@example.com 8.8.8.8 [1]", columns, recipe)
    verdict.apply_filters([Candidate(b"Some text.", columns)], recipe)


def _filter_lines(
    lines: Sequence[document_lines.Line],
    shard: document_shards.DocumentShard,
    recipe: FilterRecipe,
    refused_licences: frozenset[str],
    repeated_shares: Mapping[int, float],
    kept_writer: JsonlZstWriter,
    dropped_writer: JsonlZstWriter,
    counts: Counter[str],
    step: StepProcess | None,
) -> list[Reject]:
    """Filter, write and count lines; return the rows that the custom step rejects."""
    documents = document_lines.decode_lines(lines, shard, RAW_DECODER)
    candidates = [
        Candidate(document.text.encode(), decode_columns(document.meta, shard.file) if recipe.reads_meta else {})
        for document in documents
    ]
    texts = [candidate.text for candidate in candidates]
    for (row, _), document, candidate in zip(lines, documents, candidates, strict=True):
        if document.license_tag in refused_licences:
            candidate.fail(Measurement("refused_licence", document.license_tag, None, is_failed=True))
        elif recipe.windows is not None and row in repeated_shares:
            limit = float(recipe.windows.max_share)
            candidate.fail(Measurement("repeated_windows", repeated_shares[row], limit, is_failed=True))
    verdict.apply_filters([candidate for candidate in candidates if candidate.failure is None], recipe)
    kept_lines: list[bytes] = []
    dropped_lines: list[verdict.DroppedDocument] = []
    rejects: list[Reject] = []
    for (row, line), document, text, candidate in zip(lines, documents, texts, candidates, strict=True):
        if candidate.scores:
            counts.update(
                f"{_SCORED_PREFIX}{column}/{min(int(score * _SCORE_BINS), _SCORE_BINS - 1):02}"
                for column, score in candidate.scores.items()
            )
            document = add_columns(document, candidate.scores)
        is_rewritten = candidate.scores or candidate.text != text
        kept_line = encode_with_text(document, candidate.text.decode()) if is_rewritten else line
        if step is not None and candidate.failure is None:
            result = step.apply(candidate, kept_line, shard.path, row)
            if isinstance(result, Reject):
                rejects.append(result)
                continue
            kept_line = result
        if (failure := candidate.failure) is not None:
            measured = failure.reason, failure.value, failure.limit
            dropped_lines.append(verdict.DroppedDocument(document.doc_id, *measured, shard.path, row))
            counts[dropped_key(failure.reason)] += 1
            continue
        kept_lines.append(kept_line)
        if candidate.changes:
            counts.update(candidate.changes)
        counts["changed"] += kept_line is not line
        counts["bytes"] += len(candidate.text)
    kept_writer.write_lines(b"\n".join([*kept_lines, b""]), len(kept_lines))
    dropped_writer.write_rows(dropped_lines)
    return rejects


_MANIFEST_COUNT_KEYS = {"rows": "documents", "documents": "documents", "bytes": "text_bytes"}  # by shard count
_CHANGE_PREFIXES = ("masked/", "removed/", "removed_lines/", "python/")


def filter_corpus(
    staging: StagingDir, corpus: Artifact, recipe: FilterRecipe, refused_licences: frozenset[str], settings: RunSettings
) -> BuildResult:
    """Filter a corpus shard by shard; the shards keep their names.

    If the recipe has `windows`, the documents that repeat earlier ones are found first. Shards are linked, not decoded,
    if the recipe has no filter, `refused_licences` is empty, and the corpus's manifest has all counts.

    Raises:
        UsageError: A document lacks the column of a rule, or the column cannot be compared with the rule's constant;
            the language detector is not installed; the classifier lacks the label of `score`, or a document already has
            the column that `score` adds; lists of domains or URLs are set, and no kept document has a URL; a package is
            not the version that the custom step pins.
        InputError: No document is kept (the message has the most frequent reasons), a document is too long, a line is
            not a Document, a list or the classifier is not usable, or the recipe's custom step is invalid or rejects
            too many documents.
    """
    decisions = {} if recipe.language is None else {"language": recipe.language.detection_settings()}
    shards = sealed_shards.document_shards(corpus)
    settings = limit_workers(staging, settings, [shard.file.stat().st_size for shard in shards])
    arguments = {"recipe": recipe, "zstd_level": settings.zstd_level, "refused_licences": refused_licences}
    tasks = [Task.bind(filter_shard, shard, **arguments) for shard in shards]
    counts = {count: corpus.manifest.identity.counts.get(name, 0) for count, name in _MANIFEST_COUNT_KEYS.items()}
    if is_linked := keeps_all_documents(recipe, refused_licences) and all(counts.values()):
        settings = replace(settings, workers=0)  # workers would take longer to start than the hashes take
        tasks = [Task.bind(_link_shard, shard) for shard in shards]
    run = stage_runner(run_task, settings, no_warm_up if is_linked else functools.partial(load_filters, recipe))
    if recipe.windows is not None:
        # Deduplication code loads slowly, so only recipes with `windows` import it.
        from pipeline_assets.corpus.dedup.repeated_windows import find_repeating_documents

        repeats = find_repeating_documents(run, staging, shards, recipe.windows, refused_licences, settings)
        pairs = zip(shards, repeats, strict=True)
        tasks = [Task.bind(_filter_repeating, shard, rows, **arguments) for shard, rows in pairs]
    receipts = list(run("filter", tasks, staging))
    counts = counts if is_linked else total_counts(receipts)
    step_time, step = {}, recipe.python
    if step is not None:
        step_time = {STEP_SECONDS: round(sum(receipt.notes[STEP_SECONDS] for receipt in receipts), 3)}
        rejected, rejects = sum(receipt.files[2].rows for receipt in receipts), read_rejects(staging, receipts)
        limit, describe = step.max_reject_fraction, functools.partial(_describe_reject, corpus)
        check_rejects(rejected, counts["rows"], limit, rejects, step.file, describe, lambda first: "correct the step")
    if not counts.get("documents"):
        first_reject = None if is_linked else next(read_rejects(staging, receipts), None)
        raise _no_documents_error(counts, corpus, first_reject)
    if recipe.blocklist is not None and counts.get(WITHOUT_URL) == counts["documents"]:
        what = f"no kept document has a URL in the column `{recipe.blocklist.url_column}`"
        fix = "correct `blocklist.url_column`, or remove the lists of domains and URLs"
        raise UsageError(what, corpus.manifest.name, fix)
    files = [receipt.files[0] for receipt in receipts]
    for part, name in ((1, verdict.DROPPED_FILE), (2, document_shards.REJECTS_FILE)):
        parts = [file for receipt in receipts for file in receipt.files[part : part + 1]]
        files.append(concatenate_lines(staging, parts, name, settings.zstd_level))
    manifest_counts: dict[str, Any] = {
        "ledger": Ledger.from_counts(counts).to_json(),
        "documents": counts["documents"],
        "text_bytes": counts["bytes"],
        "changed_documents": counts.get("changed", 0),
        "changes": {name: count for name, count in counts.items() if name.startswith(_CHANGE_PREFIXES)},
    }
    if WITHOUT_URL in counts:
        manifest_counts[WITHOUT_URL] = counts[WITHOUT_URL]
    if recipe.score is not None:
        column = recipe.score.column
        histogram = [counts.get(f"{_SCORED_PREFIX}{column}/{number:02}", 0) for number in range(_SCORE_BINS)]
        manifest_counts["scored"] = {column: histogram}
    return BuildResult(files, manifest_counts, decisions, provenance=step_time)


def _link_shard(shard: document_shards.DocumentShard, window: Window, folder: StagingView) -> Receipt:
    linked = sealed_shards.link_shard(shard, folder)
    return Receipt([linked], {"documents": shard.rows}, reads={str(shard.file): linked.sha256})


def _describe_reject(corpus: Artifact, reject: Reject) -> str:
    """Format a reject with the source row and the id of its document."""
    document = read_line(corpus.path(reject.file), reject.row, Document)
    return replace(reject, file=document.meta.source_location).describe(f"({document.doc_id})")


def _no_documents_error(counts: Mapping[str, int], corpus: Artifact, first_reject: Reject | None) -> InputError:
    outcomes = Ledger.from_counts(counts).other_outcomes()
    reasons = sorted(((count, reason) for _, reason, count in outcomes), reverse=True)
    summary = ", ".join(f"{count:,} {reason}" for count, reason in reasons[:5]) or "the corpus is empty"
    example = correct = ""
    if first_reject is not None:
        example, correct = f" (the first reject: {_describe_reject(corpus, first_reject)})", ", correct the step"
    what = f"none of the {counts.get('rows', 0):,} documents is kept ({summary}){example}"
    return InputError(what, corpus.manifest.name, f"loosen the filters{correct} or remove the source")


def _filter_repeating(
    shard: document_shards.DocumentShard, repeats: "ShardRepeats", window: Window, folder: StagingView, **arguments: Any
) -> Receipt:
    """Run `filter_shard` with the results of the search for repeated windows."""
    window = replace(window, poison_rows=window.poison_rows | repeats.poison_rows)
    return filter_shard(shard, window, folder, **arguments, repeated_shares=repeats.shares_by_row())
