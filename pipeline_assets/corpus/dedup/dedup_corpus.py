"""Deduplicates a corpus of several sources: their Document shards → those that stay, and a decision for each document.
And signs one: a deduplicated corpus → what its documents are compared by, for corpora that come later.

A signature store holds all that a deduplication asks of documents that it has seen: their ids, the hashes of their
normalised texts, the keys of their bands, their sets of shingles. What is deduplicated against it is what would be left
of it if both had been deduplicated together, the store's documents first; and no text of them is read again. A build
that was killed goes on where it was.
"""

import functools
import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline_assets.corpus.converted_shards import gather_lines
from pipeline_assets.corpus.corpus_shard import CorpusShard, add_by_source, corpus_shards
from pipeline_assets.corpus.dedup import resolution, sketches, steps, verify
from pipeline_assets.corpus.dedup.candidates import ExactCopies, find_exact, load_faiss, propose
from pipeline_assets.corpus.dedup.decision import (
    DECISIONS_FILE,
    EDGES_FILE,
    GROUPS_FILE,
    SIGNATURES_STAGE,
    Group,
    Sample,
)
from pipeline_assets.corpus.dedup.recipe import DedupRecipe, NearRecipe
from pipeline_assets.corpus.dedup.sketches import BANDS, BITS, FATAL, HASHES, IDS, sketch_corpus, sketch_shard
from pipeline_assets.corpus.dedup.verify import find_edges, write_sets
from pipeline_assets.corpus.document_shards import REJECTS_FILE, fatal_row
from pipeline_assets.corpus.formats import parquet
from pipeline_assets.corpus.formats.arrow_columns import numbers, repeated, to_array
from pipeline_assets.corpus.formats.jsonl_zst import write_rows
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.durable import DurableFile
from pipeline_assets.spine.engine import RunSettings, limit_workers, run_stages
from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.spine.ledger import Ledger, Reject
from pipeline_assets.spine.stage import KILLED_WORKER, Task, run_task
from pipeline_assets.spine.staging import WORK, OutputFile, Receipt, StagingDir, total_counts

_EDGES = {
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
EDGE_SCHEMA = pa.schema([pa.field(name, kind, nullable=name == "other_seen_in") for name, kind in _EDGES.items()])


def dedup_corpus(
    building: StagingDir,
    sources: Mapping[str, Artifact],
    recipe: DedupRecipe,
    settings: RunSettings,
    seen: Mapping[str, Artifact] = MappingProxyType({}),
) -> BuildResult:
    """Files: the documents that stay, a shard of each shard; `decisions.jsonl.zst`, a line for each document, in order;
    `edges.parquet`, all pairs that are as alike as the threshold asks, unless the mode is `exact`; `groups.json`, the
    largest groups with samples; rejects.

    Args:
        seen: signature stores by their names, whose documents all stay and come before all others.
    Raises:
        UsageError: no document has the quality column, a store has other signatures, or faiss is asked for and isn't
            installed.
        InputError: a line that is no Document, or two documents with one id.
    """
    if recipe.near is not None and recipe.near.faiss is not None:
        load_faiss()
    stores = open_seen(seen, recipe)
    shards = corpus_shards(sources, sum(store.documents for store in stores))
    documents = shards[-1].first_number + shards[-1].rows
    if documents > steps.MAX_DOCUMENTS:
        fix = f"deduplicate at most {steps.MAX_DOCUMENTS:,} at a time"
        raise InputError(f"{documents:,} documents", "the corpus", fix)
    dedup = open_run(building, shards, recipe, settings, stores)
    sketched = sketch_corpus(dedup)
    exact = find_exact(dedup, sketched) if recipe.mode != "near" else ExactCopies()
    near = find_near(dedup, sketched, recipe.near, exact) if recipe.near is not None else resolution.NearDuplicates()
    decisions = resolution.write_decisions(dedup, sketched, exact, near)
    groups = resolution.largest_groups(dedup, decisions)
    kept = resolution.write_kept(dedup, sketched, decisions, groups)
    files = [
        *(receipt.files[0] for receipt in kept),
        gather_lines(building, (decision.files[0] for decision in decisions), DECISIONS_FILE, settings.zstd_level),
        *([publish_edges(building, near.edges, stores)] if recipe.near is not None else []),
        _write_groups(dedup, groups, kept),
        _write_rejects(building, shards, sketched, settings.zstd_level),
    ]
    of_sketches = total_counts(sketched)
    comparisons = {"without_words": of_sketches["without_words"], "short": of_sketches["short"], **near.counts}
    return BuildResult(files, _counts(shards, sketched, decisions, kept) | {"comparisons": comparisons}, {})


def open_run(
    building: StagingDir,
    shards: Sequence[CorpusShard],
    recipe: DedupRecipe,
    settings: RunSettings,
    seen: Sequence[steps.SeenStore] = (),
) -> steps.DedupRun:
    """Open a deduplication of these shards."""
    settings = limit_workers(building, settings, [shard.file.stat().st_size for shard in shards])
    run_stage = run_stages(run_task, settings, functools.partial(_load_kernels, recipe))
    return steps.DedupRun(building, shards, recipe, settings, run_stage, seen)


def _load_kernels(recipe: DedupRecipe) -> None:
    sketches.load_kernels(recipe)
    if recipe.near is not None:
        verify.load_kernels()


def find_near(
    dedup: steps.DedupRun, sketched: Sequence[Receipt], recipe: NearRecipe, exact: ExactCopies
) -> resolution.NearDuplicates:
    """All near duplicates that bands or sketches propose, out of the sketches of the corpus and its texts."""
    proposed = propose(dedup, sketched, recipe, exact)
    written, edges = find_edges(dedup, proposed, recipe)
    return resolution.resolve_clusters(dedup, dedup.runs(edges), exact, total_counts([*proposed, *written, *edges]))


def publish_edges(building: StagingDir, runs: steps.Runs, seen: Sequence[steps.SeenStore]) -> OutputFile:
    """All edges in one file, in the order of the later document, then of the other."""
    tables = parquet.in_row_groups((_published(run, seen) for run in runs), EDGE_SCHEMA)
    return parquet.write_table(building.path(EDGES_FILE), EDGES_FILE, tables, EDGE_SCHEMA)


def _published(run: Path, seen: Sequence[steps.SeenStore]) -> pa.Table:
    edges = parquet.read_columns(run)
    shared, own, other = (numbers(edges[name]) for name in ("shared", "shingles", "other_shingles"))
    ids = (edges["doc_id"], edges["other_doc_id"], steps.open_stores(numbers(edges["earlier"]), seen))
    as_they_are = (edges[name] for name in ("later", "earlier", "shared", "shingles", "other_shingles"))
    alike = (to_array(shared / (own + other - shared)), to_array(shared / own))
    return pa.table([*ids, *as_they_are, *alike], schema=EDGE_SCHEMA)


def _seen_samples(store: steps.SeenStore, wanted: Collection[int]) -> Iterator[tuple[int, Sample]]:
    """(number in the corpus, document) of those that are of a store."""
    own = [number for number in wanted if 0 <= number - store.first_number < store.documents]
    if own:
        rows = parquet.read_columns(store.listed, ["doc_id", "source"]).take(
            to_array(np.array(own) - store.first_number)
        )
        for number, row in zip(own, rows.to_pylist(), strict=True):
            yield number, Sample(row["doc_id"], row["source"], "", store.name)


def _write_groups(
    dedup: steps.DedupRun, groups: Sequence[resolution.LargeGroup], kept: Sequence[Receipt]
) -> OutputFile:
    samples = {
        shard.first_number + int(row): Sample(doc_id, shard.source, beginning)
        for shard, receipt in zip(dedup.shards, kept, strict=True)
        for row, (doc_id, beginning) in receipt.notes[resolution.SAMPLES].items()
    }
    for store in dedup.seen:
        samples.update(_seen_samples(store, [group.kept for group in groups]))
    rows = [
        Group(group.dropped, samples[group.kept], tuple(samples[number] for number in group.members))
        for group in groups
    ]
    with DurableFile(dedup.building.path(GROUPS_FILE)) as file:
        file.write(msgspec.json.encode(rows))
    return OutputFile.plain(GROUPS_FILE, len(rows), file)


def _write_rejects(
    building: StagingDir, shards: Sequence[CorpusShard], sketched: Sequence[Receipt], zstd_level: int
) -> OutputFile:
    rejects = [
        Reject(f"{shard.source}/{shard.path}", row, KILLED_WORKER).to_json()
        for shard, sketch in zip(shards, sketched, strict=True)
        for row in sketch.notes[FATAL]
    ]
    return write_rows(building.path(REJECTS_FILE), REJECTS_FILE, rejects, zstd_level)


def _counts(
    shards: Sequence[CorpusShard], sketched: Sequence[Receipt], decisions: Sequence[Receipt], kept: Sequence[Receipt]
) -> dict[str, Any]:
    by_source = add_by_source(
        shards,
        (
            {
                **decision.counts,
                "in": shard.rows,
                "rejected": len(sketch.notes[FATAL]),
                "text_bytes": sketch.counts["bytes"] - documents.counts["dropped_bytes"],
                "shards": 1,
            }
            for shard, sketch, decision, documents in zip(shards, sketched, decisions, kept, strict=True)
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


_DOCUMENTS_FILE, _SETS_AREA, _MEMBERS = "documents.parquet", "shingles", f"{WORK}/members.set"
_DOCUMENTS = pa.schema([pa.field(name, pa.string(), nullable=False) for name in ("doc_id", "source")])
_ROW_BYTES = 250  # of memory for a row: as read, as sorted, as written
_STORED = {HASHES: "hashes", BANDS: "bands", BITS: "sketches"}


def sign_corpus(
    building: StagingDir, deduplicated: Artifact, recipe: DedupRecipe, settings: RunSettings
) -> BuildResult:
    """Files: `documents.parquet`, id and source of each in order; below `hashes` and, unless the mode is `exact`, below
    `bands` or `sketches` a file of all rows by key; below `shingles` the sets of each shard.

    Args:
        recipe: that of the deduplication.
    Raises:
        InputError: a line that is no Document, or one that kills its worker.
    """
    mode = "exact" if recipe.near is None else "both"
    first_ones = {"mode": mode, "selection": "first", "quality_column": None}
    recipe = DedupRecipe.from_content(recipe.content() | first_ones)
    shards = corpus_shards({deduplicated.manifest.name: deduplicated})
    run = open_run(building, shards, recipe, settings)
    sketched = run.run("sketch", (Task.for_kernel(sketch_shard, shard, recipe) for shard in shards))
    for shard, sketch in zip(shards, sketched, strict=True):
        if sketch.notes[FATAL]:
            raise fatal_row(sketch.notes[FATAL][0], "reads", shard.file)
    files = [_write(run, _DOCUMENTS_FILE, _documents(run, sketched), _DOCUMENTS), *_write_runs(run, sketched)]
    if recipe.near is not None:
        files += _write_sets(run, recipe.near.proposer.shingle_words)
    by_source = add_by_source(shards, ({"documents": shard.rows} for shard in shards))
    in_order = [{"source": source, **counts} for source, counts in by_source.items()]
    return BuildResult(files, {"documents": sum(shard.rows for shard in shards), "sources": in_order}, {})


def _write(run: steps.DedupRun, name: str, tables: Iterable[pa.Table], schema: pa.Schema) -> OutputFile:
    return parquet.write_table(run.building.path(name), name, parquet.in_row_groups(tables, schema), schema)


def _documents(run: steps.DedupRun, sketched: Sequence[Receipt]) -> Iterator[pa.Table]:
    for shard, sketch in zip(run.shards, sketched, strict=True):
        for ids in map(parquet.read_columns, run.runs([sketch], IDS)):
            yield pa.table([ids["doc_id"], repeated(shard.source, ids.num_rows)], schema=_DOCUMENTS)


def _write_runs(run: steps.DedupRun, sketched: Sequence[Receipt]) -> Iterator[OutputFile]:
    """Write all rows of an area into one file by key, so that a range of keys is read without the others.

    Rows of one key are in the order of their documents. What memory takes at a time is a range of keys.
    """
    for area, folder in _STORED.items():
        if runs := run.runs(sketched, area):
            schema = pa.schema([field.with_nullable(False) for field in pq.read_schema(runs[0])])
            parts = (part.table() for part in steps.ranges(runs, run.share_bytes // _ROW_BYTES))
            yield _write(run, f"{folder}/all.parquet", (_by_key(part, schema) for part in parts), schema)


def _by_key(table: pa.Table, schema: pa.Schema) -> pa.Table:
    by = np.lexsort((numbers(table["order"]), numbers(table.column(0))))
    return pa.table(table.take(to_array(by)).columns, schema=schema)


def _write_sets(run: steps.DedupRun, shingle_words: int) -> Iterator[OutputFile]:
    members = steps.empty_bitmap(run.documents)
    steps.add_to_bitmap(members, np.arange(run.documents, dtype=np.uint64))
    all_of_them = steps.save(members, run.building.path(_MEMBERS))
    tasks = (Task.for_kernel(write_sets, shard, all_of_them, shingle_words, _SETS_AREA) for shard in run.shards)
    for receipt in run.run("shingle", tasks):
        yield from receipt.files


def open_seen(stores: Mapping[str, Artifact], recipe: DedupRecipe) -> list[steps.SeenStore]:
    """Signature stores, in the order in which their documents come.

    Raises:
        UsageError: something else than a store, or one that this recipe's documents can't be compared to.
    """
    for store in stores.values():
        _refuse_other_signatures(store, recipe)
    documents = (store.manifest.identity.counts["documents"] for store in stores.values())
    firsts = itertools.accumulate(documents, initial=0)
    return [_opened(name, store, first) for (name, store), first in zip(stores.items(), firsts, strict=False)]


def _opened(name: str, store: Artifact, first: int) -> steps.SeenStore:
    counts, paths = store.manifest.identity.counts, [entry.path for entry in store.manifest.identity.files]
    firsts = itertools.accumulate((one["documents"] for one in counts["sources"]), initial=first)
    hashes, bands, sketches = (
        steps.SeenRuns(tuple(store.path(path) for path in paths if path.startswith(f"{area}/")), first)
        for area in _STORED.values()
    )
    stems = (path.removesuffix(steps.SETS_SUFFIX) for path in paths if path.endswith(steps.SETS_SUFFIX))
    files = [(f"{stem}{steps.SETS_SUFFIX}", f"{stem}{steps.INDEX_SUFFIX}") for stem in stems]
    return steps.SeenStore(
        name,
        first,
        counts["documents"],
        store.path(_DOCUMENTS_FILE),
        hashes,
        bands,
        sketches,
        tuple(steps.SetsFile(first, store.path(sets), store.path(index)) for sets, index in files),
        tuple((number, one["source"]) for number, one in zip(firsts, counts["sources"], strict=False)),
    )


def _refuse_other_signatures(store: Artifact, recipe: DedupRecipe) -> None:
    stage, again = store.manifest.identity.stage, "make one of that corpus with stage-a signatures"
    if stage.name != SIGNATURES_STAGE.name:
        raise UsageError(f"this is a {store.manifest.kind}, no signature store", store.folder, again)
    if stage != SIGNATURES_STAGE:
        what = f"its signatures are of version {stage.version}, this program's of {SIGNATURES_STAGE.version}"
        raise UsageError(what, store.folder, again)
    has, needs = _parameters(store.manifest.identity.recipe["signatures"]), _parameters(recipe.signatures())
    if recipe.near is None:
        has = needs | {"scope": has["scope"]}
    if has != needs:
        differing = [key for key in has if key in needs and has[key] != needs[key]]
        whose = (", ".join(f"{key} {one[key] or 'none'}" for key in differing) for one in (has, needs))
        what = "its signatures can't be compared with this run's: the store has {}; this run {}".format(*whose)
        fix = "run with those of the store, or deduplicate its corpus with these and sign it again (stage-a signatures)"
        raise UsageError(what, store.folder, fix)


def _parameters(signatures: Mapping[str, Any]) -> dict[str, Any]:
    """Scope and proposer, and what the proposer was told; those of two stores that differ in nothing else differ in a
    key that both have.
    """
    proposer = next((name for name in signatures if name != "scope"), None)
    return {"scope": signatures["scope"], "proposer": proposer, **(signatures[proposer] if proposer else {})}
