"""Deduplication of a corpus: kept documents and a decision for each document."""

import functools
import importlib
from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from pipeline_assets.corpus.converted_shards import concatenate_lines
from pipeline_assets.corpus.corpus_shard import CorpusShard, corpus_shards, sum_by_source
from pipeline_assets.corpus.dedup import resolution, sketches, verify
from pipeline_assets.corpus.dedup.candidates import propose_corpus_pairs
from pipeline_assets.corpus.dedup.decision import DECISIONS_FILE, EDGES_FILE, GROUPS_FILE, DuplicateGroup, GroupExample
from pipeline_assets.corpus.dedup.dedup_run import DedupRun, files_in
from pipeline_assets.corpus.dedup.exact_copies import ExactCopies, find_exact_copies
from pipeline_assets.corpus.dedup.groups import LargeGroup, largest_groups
from pipeline_assets.corpus.dedup.kept_documents import SAMPLES_NOTE, write_kept_documents
from pipeline_assets.corpus.dedup.neighbours import load_faiss
from pipeline_assets.corpus.dedup.recipe import MAX_DOCUMENTS, DedupRecipe
from pipeline_assets.corpus.dedup.signature_store import SeenStore, open_stores, seen_store_names
from pipeline_assets.corpus.dedup.sketches import POISON_ROWS_NOTE, sketch_corpus
from pipeline_assets.corpus.dedup.sorted_runs import Runs
from pipeline_assets.corpus.dedup.verify import find_edges
from pipeline_assets.corpus.document_shards import REJECTS_FILE
from pipeline_assets.corpus.formats.arrow_columns import to_arrow, to_numpy
from pipeline_assets.corpus.formats.jsonl_zst import write_rows
from pipeline_assets.corpus.formats.parquet import read_columns
from pipeline_assets.corpus.formats.parquet_tables import regroup_rows, write_table
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.engine import RunSettings, limit_workers, stage_runner
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.ledger import Ledger
from pipeline_assets.spine.rejects import Reject
from pipeline_assets.spine.stage import KILLED_WORKER
from pipeline_assets.spine.staging import OutputFile, Receipt, StagingDir, total_counts
from pipeline_assets.spine.task import run_task

_EDGE_TYPES = {
    "doc_id": pa.string(),
    "other_doc_id": pa.string(),
    "other_seen_in": pa.string(),
    "order": pa.uint64(),
    "other_order": pa.uint64(),
    "shared": pa.int64(),
    "shingles": pa.int64(),
    "other_shingles": pa.int64(),
    "similarity": pa.float64(),
    "containment": pa.float64(),
}
EDGE_SCHEMA = pa.schema([pa.field(name, kind, nullable=name == "other_seen_in") for name, kind in _EDGE_TYPES.items()])


def dedup_corpus(
    staging: StagingDir,
    sources: Mapping[str, Artifact],
    recipe: DedupRecipe,
    settings: RunSettings,
    seen_artifacts: Mapping[str, Artifact] = MappingProxyType({}),
) -> BuildResult:
    """Deduplicate the corpora of several sources together.

    The documents of the signature stores `seen_artifacts` precede the documents of the sources, and are never dropped.

    The files are a shard of kept documents for each input shard; `decisions.jsonl.zst`, a line for each document, in
    order; `edges.parquet` (not in the mode `exact`), the compared pairs whose similarity reaches the threshold;
    `groups.json`, the largest groups with samples; and rejects, which are poison rows.

    Raises:
        UsageError: No document has the quality column, a quality is not a number, one of `seen_artifacts` is not a
            signature store or has signatures that cannot be compared, or faiss is configured but not installed.
        InputError: A line is not a Document, two documents have the same id, or the number of documents exceeds 2**32.
    """
    if recipe.near is not None and recipe.near.faiss is not None:
        load_faiss()
    seen_stores = open_stores(seen_artifacts, recipe)
    shards = corpus_shards(sources, sum(store.document_count for store in seen_stores))
    documents = shards[-1].first_number + shards[-1].rows
    if documents > MAX_DOCUMENTS:
        what = f"deduplication is limited to {MAX_DOCUMENTS:,} documents, got {documents:,}"
        raise InputError(what, "the corpus", "split it into several corpora")
    dedup = prepare_run(staging, shards, recipe, settings, seen_stores)
    sketch_receipts = sketch_corpus(dedup)
    exact_copies = find_exact_copies(dedup, sketch_receipts)
    near_duplicates = find_near_duplicates(dedup, sketch_receipts, exact_copies)
    decision_receipts = resolution.write_decisions(dedup, sketch_receipts, exact_copies, near_duplicates)
    groups = largest_groups(dedup, decision_receipts)
    kept_receipts = write_kept_documents(dedup, sketch_receipts, decision_receipts, groups)
    decision_files = (receipt.files[0] for receipt in decision_receipts)
    files = [
        *(receipt.files[0] for receipt in kept_receipts),
        concatenate_lines(staging, decision_files, DECISIONS_FILE, settings.zstd_level),
        *([write_edges(dedup, near_duplicates.edge_runs)] if recipe.near is not None else []),
        _write_groups(dedup, groups, kept_receipts),
        _write_rejects(dedup, sketch_receipts),
    ]
    counts = total_counts(sketch_receipts)
    comparisons = {"without_words": counts["without_words"], "short": counts["short"], **near_duplicates.counts}
    manifest_counts = _manifest_counts(shards, sketch_receipts, decision_receipts, kept_receipts)
    return BuildResult(files, manifest_counts | {"comparisons": comparisons}, {})


def prepare_run(
    staging: StagingDir,
    shards: Sequence[CorpusShard],
    recipe: DedupRecipe,
    settings: RunSettings,
    seen_stores: Sequence[SeenStore] = (),
) -> DedupRun:
    """Prepare a `DedupRun` whose workers load compiled code before their first task."""
    settings = limit_workers(staging, settings, [shard.file.stat().st_size for shard in shards])
    run_stage = stage_runner(run_task, settings, functools.partial(_load_kernels, recipe))
    return DedupRun(staging, shards, recipe, settings, run_stage, seen_stores)


def _load_kernels(recipe: DedupRecipe) -> None:
    importlib.import_module("pyarrow.compute")
    sketches.load_kernels(recipe)
    if recipe.near is not None:
        verify.load_kernels()


def find_near_duplicates(
    dedup: DedupRun, sketch_receipts: Sequence[Receipt], exact_copies: ExactCopies
) -> resolution.NearDuplicates:
    """Find near duplicates among pairs that share a band or have near binary sketches."""
    recipe = dedup.recipe.near
    if recipe is None:
        return resolution.NearDuplicates()
    pair_receipts = propose_corpus_pairs(dedup, sketch_receipts, recipe, exact_copies)
    set_receipts, edge_receipts = find_edges(dedup, pair_receipts, recipe)
    counts = total_counts([*pair_receipts, *set_receipts, *edge_receipts])
    return resolution.resolve_edges(dedup, files_in(edge_receipts), exact_copies, counts)


def write_edges(dedup: DedupRun, runs: Runs) -> OutputFile:
    """Write all edges to one file, sorted by later document, then by earlier document."""
    tables = regroup_rows((_edge_rows(dedup.read_run(run), dedup.seen_stores) for run in runs), EDGE_SCHEMA)
    return write_table(dedup.staging.path(EDGES_FILE), EDGES_FILE, tables, EDGE_SCHEMA)


def _edge_rows(edges: pa.Table, seen_stores: Sequence[SeenStore]) -> pa.Table:
    shared, size, other = (to_numpy(edges[name]) for name in ("shared", "shingles", "other_shingles"))
    ids = (edges["doc_id"], edges["other_doc_id"], seen_store_names(to_numpy(edges["earlier"]), seen_stores))
    unchanged = (edges[name] for name in ("later", "earlier", "shared", "shingles", "other_shingles"))
    similarity, containment = to_arrow(shared / (size + other - shared)), to_arrow(shared / size)
    return pa.table([*ids, *unchanged, similarity, containment], schema=EDGE_SCHEMA)


def _write_groups(dedup: DedupRun, groups: Sequence[LargeGroup], kept_receipts: Sequence[Receipt]) -> OutputFile:
    samples = {
        shard.first_number + int(row): GroupExample(doc_id, shard.source, beginning)
        for shard, receipt in zip(dedup.shards, kept_receipts, strict=True)
        for row, (doc_id, beginning) in receipt.notes[SAMPLES_NOTE].items()
    }
    kept_numbers = [group.kept_number for group in groups]
    for store in dedup.seen_stores:
        numbers = [number for number in kept_numbers if 0 <= number - store.first_number < store.document_count]
        if numbers:
            store_rows = to_arrow(np.array(numbers) - store.first_number)
            rows = read_columns(store.documents_file, ["doc_id", "source"]).take(store_rows).to_pylist()
            examples = (GroupExample(row["doc_id"], row["source"], "", store.name) for row in rows)
            samples.update(zip(numbers, examples, strict=True))
    entries = []
    for group in groups:
        dropped = tuple(samples[number] for number in group.dropped_numbers)
        entries.append(DuplicateGroup(group.dropped_count, samples[group.kept_number], dropped))
    return dedup.staging.write(GROUPS_FILE, msgspec.json.encode(entries), len(entries))


def _write_rejects(dedup: DedupRun, sketch_receipts: Sequence[Receipt]) -> OutputFile:
    rejects = [
        Reject(f"{shard.source}/{shard.path}", row, KILLED_WORKER).to_json()
        for shard, sketch in zip(dedup.shards, sketch_receipts, strict=True)
        for row in sketch.notes[POISON_ROWS_NOTE]
    ]
    return write_rows(dedup.staging.path(REJECTS_FILE), REJECTS_FILE, rejects, dedup.settings.zstd_level)


def _manifest_counts(
    shards: Sequence[CorpusShard],
    sketch_receipts: Sequence[Receipt],
    decision_receipts: Sequence[Receipt],
    kept_receipts: Sequence[Receipt],
) -> dict[str, Any]:
    by_shard = zip(shards, sketch_receipts, decision_receipts, kept_receipts, strict=True)
    by_source = sum_by_source(
        shards,
        (
            {
                **decision.counts,
                "in": shard.rows,
                "rejected": len(sketch.notes[POISON_ROWS_NOTE]),
                "text_bytes": sketch.counts["bytes"] - documents.counts["dropped_bytes"],
                "shards": 1,
            }
            for shard, sketch, decision, documents in by_shard
        ),
    )
    total = sum(by_source.values(), Counter[str]())
    dropped = {name: total[name] for name in ("exact_duplicate", "near_duplicate") if total[name]}
    rejected = {KILLED_WORKER: total["rejected"]} if total["rejected"] else {}
    return {
        "ledger": Ledger(total["in"], total["out"], dropped, rejected).to_json(),
        "documents": total["out"],
        "text_bytes": total["text_bytes"],
        "by_source": by_source,
    }
