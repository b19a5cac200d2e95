"""Deduplicates a corpus of several sources: their Document shards → those that stay, and a decision for each document.
And signs one: a deduplicated corpus → what its documents are compared by, for corpora that come later.

A signature store holds all that a deduplication asks of documents that it has seen: their ids, the hashes of their
normalised texts, the keys of their bands, their sets of shingles. What is deduplicated against it is what would be left
of it if both had been deduplicated together, the store's documents first; and no text of them is read again. A build
that was killed goes on where it was.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from pipeline_assets.corpus.dedup.candidates import load_faiss
from pipeline_assets.corpus.dedup.corpus_shard import CorpusShard, add_by_source, corpus_shards
from pipeline_assets.corpus.dedup.decision import DECISIONS_FILE, EDGES_FILE, GROUPS_FILE, Group, Sample
from pipeline_assets.corpus.dedup.order import (
    MAX_DOCUMENTS,
    Runs,
    document_numbers,
    even_ranges,
    include,
    no_documents,
    rows_of,
    save,
    sorted_pairs,
)
from pipeline_assets.corpus.dedup.recipe import DedupRecipe
from pipeline_assets.corpus.dedup.resolution import SAMPLES, ExactCopies, LargeGroup, NearDuplicates, largest_groups
from pipeline_assets.corpus.dedup.seen import (
    BANDS_FILE,
    BITS_FILE,
    DOCUMENTS_FILE,
    HASHES_FILE,
    SETS_AREA,
    SeenStore,
    open_seen,
    seen_samples,
    stores_of,
)
from pipeline_assets.corpus.dedup.sketches import BANDS, BITS, FATAL, HASHES, IDS, sketch_shard
from pipeline_assets.corpus.dedup.steps import (
    DedupRun,
    find_exact,
    find_near,
    open_run,
    sketch_corpus,
    write_decisions,
    write_kept,
)
from pipeline_assets.corpus.dedup.tasks import Task
from pipeline_assets.corpus.dedup.verify import write_sets
from pipeline_assets.corpus.document_shards import REJECTS_FILE, fatal_row, gather_lines
from pipeline_assets.corpus.formats.jsonl_zst import write_rows
from pipeline_assets.corpus.formats.parquet import (
    column_of,
    in_row_groups,
    numbers,
    read_columns,
    repeated,
    write_table,
)
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.durable import DurableFile
from pipeline_assets.corpus.spine.engine import RunSettings
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.ledger import Ledger, Reject
from pipeline_assets.corpus.spine.staging import WORK, OutputFile, Receipt, StagingDir, total_counts
from pipeline_assets.corpus.spine.target import BuildResult
from pipeline_assets.corpus.spine.worker import KILLED_WORKER

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
    if documents > MAX_DOCUMENTS:
        fix = f"deduplicate at most {MAX_DOCUMENTS:,} at a time"
        raise InputError(f"{documents:,} documents", "the corpus", fix)
    with open_run(building, shards, recipe, settings, stores) as dedup:
        sketches = sketch_corpus(dedup)
        exact = find_exact(dedup, sketches) if recipe.mode != "near" else ExactCopies()
        near = find_near(dedup, sketches, recipe.near, exact) if recipe.near is not None else NearDuplicates()
        decisions = write_decisions(dedup, sketches, exact, near)
        groups = largest_groups(documents, exact, near)
        kept = write_kept(dedup, sketches, decisions, groups)
    files = [
        *(receipt.files[0] for receipt in kept),
        gather_lines(building, (decision.files[0] for decision in decisions), DECISIONS_FILE, settings.zstd_level),
        *([publish_edges(building, near.edges, stores)] if recipe.near is not None else []),
        _write_groups(dedup, groups, kept),
        _write_rejects(building, shards, sketches, settings.zstd_level),
    ]
    of_sketches = total_counts(sketches)
    comparisons = {"without_words": of_sketches["without_words"], "short": of_sketches["short"], **near.counts}
    return BuildResult(files, _counts(shards, sketches, decisions, kept) | {"comparisons": comparisons}, {})


def publish_edges(building: StagingDir, runs: Runs, seen: Sequence[SeenStore]) -> OutputFile:
    """All edges in one file, in the order of the later document, then of the other."""
    tables = in_row_groups((_published(run, seen) for run in runs), EDGE_SCHEMA)
    return write_table(building.path(EDGES_FILE), EDGES_FILE, tables, EDGE_SCHEMA)


def _published(run: Path, seen: Sequence[SeenStore]) -> pa.Table:
    edges = read_columns(run)
    shared, own, other = (numbers(edges[name]) for name in ("shared", "shingles", "other_shingles"))
    ids = (edges["doc_id"], edges["other_doc_id"], stores_of(numbers(edges["earlier"]), seen))
    as_they_are = (edges[name] for name in ("later", "earlier", "shared", "shingles", "other_shingles"))
    alike = (column_of(shared / (own + other - shared)), column_of(shared / own))
    return pa.table([*ids, *as_they_are, *alike], schema=EDGE_SCHEMA)


def _write_groups(dedup: DedupRun, groups: Sequence[LargeGroup], kept: Sequence[Receipt]) -> OutputFile:
    samples = {
        shard.first_number + int(row): Sample(doc_id, shard.source, beginning)
        for shard, receipt in zip(dedup.shards, kept, strict=True)
        for row, (doc_id, beginning) in receipt.notes[SAMPLES].items()
    }
    for store in dedup.seen:
        samples.update(seen_samples(store, [group.kept for group in groups]))
    rows = [
        Group(group.gone, samples[group.kept], tuple(samples[number] for number in group.members)) for group in groups
    ]
    with DurableFile(dedup.building.path(GROUPS_FILE)) as file:
        file.write(msgspec.json.encode(rows))
    return OutputFile.plain(GROUPS_FILE, len(rows), file)


def _write_rejects(
    building: StagingDir, shards: Sequence[CorpusShard], sketches: Sequence[Receipt], zstd_level: int
) -> OutputFile:
    rejects = [
        Reject(f"{shard.source}/{shard.path}", row, KILLED_WORKER).to_json()
        for shard, sketch in zip(shards, sketches, strict=True)
        for row in sketch.notes[FATAL]
    ]
    return write_rows(building.path(REJECTS_FILE), REJECTS_FILE, rejects, zstd_level)


def _counts(
    shards: Sequence[CorpusShard],
    sketches: Sequence[Receipt],
    decisions: Sequence[Receipt],
    kept: Sequence[Receipt],
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
            for shard, sketch, decision, documents in zip(shards, sketches, decisions, kept, strict=True)
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


_MEMBERS = f"{WORK}/members.set"
_ROW_BYTES = 120  # of memory for a row: as read, as sorted, as written
_DOCUMENTS = {"doc_id": pa.string(), "source": pa.string()}
_HASHES = {"high": pa.uint64(), "low": pa.uint64(), "order": pa.uint64(), "doc_id": pa.string()}
_BITS = {"order": pa.uint64(), "sketch": pa.binary()}
_BANDS = {"key": pa.uint64(), "order": pa.uint64()}
_Columns = Sequence[pa.Array | pa.ChunkedArray]


def sign_corpus(
    building: StagingDir, deduplicated: Artifact, recipe: DedupRecipe, settings: RunSettings
) -> BuildResult:
    """Files: `documents.parquet`, id and source of each in order; `hashes.parquet`, by hash. Unless the mode is
    `exact`, `bands.parquet`, by key, or `sketches.parquet`, in order, and below `shingles` the sets of each shard.

    Args:
        recipe: that of the deduplication.
    Raises:
        InputError: a line that is no Document, or one that kills its worker.
    """
    mode = "exact" if recipe.near is None else "both"
    first_ones = {"mode": mode, "selection": "first", "quality_column": None}
    recipe = DedupRecipe.from_content(recipe.content() | first_ones)
    shards = corpus_shards({deduplicated.manifest.name: deduplicated})
    with open_run(building, shards, recipe, settings) as run:
        sketches = run.run("sketch", (Task.of(sketch_shard, shard, recipe) for shard in shards))
        _refuse_fatal_rows(shards, sketches)
        files = [
            _write(run, DOCUMENTS_FILE, _DOCUMENTS, _documents(run, sketches)),
            _write(run, HASHES_FILE, _HASHES, map(_by_hash, _ranges(run, sketches, HASHES))),
        ]
        if recipe.near is not None and recipe.near.minhash is not None:
            files.append(_write(run, BANDS_FILE, _BANDS, map(_by_key, _ranges(run, sketches, BANDS))))
        elif recipe.near is not None:
            files.append(_write(run, BITS_FILE, _BITS, map(_numbered, run.runs(sketches, BITS))))
        if recipe.near is not None:
            files += _write_sets(run, recipe.near.proposer.shingle_words)
    by_source = add_by_source(shards, ({"documents": shard.rows} for shard in shards))
    in_order = [{"source": source, **counts} for source, counts in by_source.items()]
    return BuildResult(files, {"documents": sum(shard.rows for shard in shards), "sources": in_order}, {})


def _refuse_fatal_rows(shards: Sequence[CorpusShard], sketches: Sequence[Receipt]) -> None:
    for shard, sketch in zip(shards, sketches, strict=True):
        if sketch.notes[FATAL]:
            raise fatal_row(sketch.notes[FATAL][0], "reads", shard.file)


def _write(run: DedupRun, name: str, kinds: Mapping[str, pa.DataType], parts: Iterable[_Columns]) -> OutputFile:
    """A file of columns without nulls, given in parts."""
    schema = pa.schema([pa.field(column, kind, nullable=False) for column, kind in kinds.items()])
    tables = (pa.table(list(columns), schema=schema) for columns in parts)
    return write_table(run.building.path(name), name, in_row_groups(tables, schema), schema)


def _documents(run: DedupRun, sketches: Sequence[Receipt]) -> Iterator[_Columns]:
    for shard, sketch in zip(run.shards, sketches, strict=True):
        for ids in map(read_columns, run.runs([sketch], IDS)):
            yield ids["doc_id"], repeated(shard.source, ids.num_rows)


def _ranges(run: DedupRun, sketches: Sequence[Receipt], area: str) -> Iterator[pa.Table]:
    """All rows of an area, in ranges that fit into memory."""
    runs = run.runs(sketches, area)
    return (part.table() for part in even_ranges(runs, rows_of(runs), run.share_bytes // _ROW_BYTES))


def _by_hash(table: pa.Table) -> _Columns:
    documents = document_numbers(numbers(table["order"]))
    by = column_of(np.lexsort((documents, numbers(table["low"]), numbers(table["high"]))))
    return [column.take(by) for column in (table["high"], table["low"], column_of(documents), table["doc_id"])]


def _by_key(table: pa.Table) -> _Columns:
    keys, documents = sorted_pairs(numbers(table["key"]), document_numbers(numbers(table["order"])))
    return column_of(keys), column_of(documents)


def _numbered(run: Path) -> _Columns:
    table = read_columns(run)
    return column_of(document_numbers(numbers(table["order"]))), table["sketch"]


def _write_sets(run: DedupRun, shingle_words: int) -> Iterator[OutputFile]:
    members = no_documents(run.documents)
    include(members, np.arange(run.documents, dtype=np.uint64))
    all_of_them = save(members, run.building.path(_MEMBERS))
    tasks = (Task.of(write_sets, shard, all_of_them, shingle_words, SETS_AREA) for shard in run.shards)
    for receipt in run.run("shingle", tasks):
        yield from receipt.files
