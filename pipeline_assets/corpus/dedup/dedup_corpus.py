"""Deduplicates a corpus of several sources: their Document shards → those that stay, and a decision for each document.
And signs one: a deduplicated corpus → what its documents are compared by, for corpora that come later.

A signature store holds all that a deduplication asks of documents that it has seen: their ids, the hashes of their
normalised texts, the keys of their bands, their sets of shingles. What is deduplicated against it is what would be left
of it if both had been deduplicated together, the store's documents first; and no text of them is read again. A build
that was killed goes on where it was.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline_assets.corpus.dedup.candidates import load_faiss
from pipeline_assets.corpus.dedup.clusters import LargeGroup, largest_groups
from pipeline_assets.corpus.dedup.corpus_shard import CorpusShard, corpus_shards
from pipeline_assets.corpus.dedup.decided_shards import SAMPLES
from pipeline_assets.corpus.dedup.decision import DECISIONS_FILE, EDGES_FILE, GROUPS_FILE, Group, Sample
from pipeline_assets.corpus.dedup.order import (
    MAX_DOCUMENTS,
    document_numbers,
    even_ranges,
    include,
    is_seen,
    no_documents,
    read_range,
    rows_of,
    save,
    sorted_pairs,
)
from pipeline_assets.corpus.dedup.recipe import DedupRecipe
from pipeline_assets.corpus.dedup.seen import (
    BANDS_FILE,
    BITS_FILE,
    DOCUMENTS_FILE,
    HASHES_FILE,
    SETS_AREA,
    SeenStore,
    documents_of,
    open_seen,
    store_of,
)
from pipeline_assets.corpus.dedup.sketches import BANDS, BITS, FATAL, HASHES, IDS
from pipeline_assets.corpus.dedup.steps import (
    DedupRun,
    ExactCopies,
    NearDuplicates,
    Runs,
    find_exact,
    find_near,
    open_run,
    runs_of,
    sketch_corpus,
    write_decisions,
    write_kept,
)
from pipeline_assets.corpus.dedup.verify import ComparedShard
from pipeline_assets.corpus.document_shards import REJECTS_FILE, gather_lines
from pipeline_assets.corpus.formats.arrow import column_of, mask, numbers, repeated, strings
from pipeline_assets.corpus.formats.jsonl_zst import write_rows
from pipeline_assets.corpus.formats.parquet import in_row_groups, read_columns, write_table
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.durable import DurableFile
from pipeline_assets.corpus.spine.engine import RunSettings
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.ledger import Ledger, Reject
from pipeline_assets.corpus.spine.sealing import WORK
from pipeline_assets.corpus.spine.staging import OutputFile, Receipt, StagingDir, total_counts
from pipeline_assets.corpus.spine.target import BuildResult
from pipeline_assets.corpus.spine.worker import KILLED_WORKER

EDGE_SCHEMA = pa.schema(
    [
        pa.field("doc_id", pa.string(), nullable=False),
        pa.field("other_doc_id", pa.string(), nullable=False),
        pa.field("other_seen_in", pa.string()),
        pa.field("order", pa.uint64(), nullable=False),
        pa.field("other_order", pa.uint64(), nullable=False),
        pa.field("shared", pa.int64(), nullable=False),
        pa.field("shingles", pa.int64(), nullable=False),
        pa.field("other_shingles", pa.int64(), nullable=False),
        pa.field("similarity", pa.float64(), nullable=False),
        pa.field("containment", pa.float64(), nullable=False),
    ]
)


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
    shards = numbered_shards(sources, stores)
    with open_run(building, shards, recipe, settings, stores) as dedup:
        sketches = sketch_corpus(dedup)
        exact = find_exact(dedup, sketches) if recipe.mode != "near" else ExactCopies()
        near = find_near(dedup, sketches, recipe.near, exact) if recipe.near is not None else NearDuplicates()
        found = {**total_counts(sketches), **near.counts}
        comparisons = {name: found[name] for name in _COMPARISONS if name in found}
        return decided_content(dedup, sketches, exact, near, comparisons)


def decided_content(
    dedup: DedupRun,
    sketches: Sequence[Receipt],
    exact: ExactCopies,
    near: NearDuplicates,
    comparisons: Mapping[str, int],
) -> BuildResult:
    """The files, and what the manifest says of them, once it is settled who goes."""
    building, zstd_level = dedup.building, dedup.settings.zstd_level
    decisions = write_decisions(dedup, sketches, exact, near)
    groups = largest_groups(dedup.documents, exact.runs, near.runs, near.of_firsts)
    kept = write_kept(
        dedup, sketches, decisions, {number for group in groups for number in (group.kept, *group.members)}
    )
    files = [
        *(receipt.files[0] for receipt in kept),
        gather_decisions(building, decisions, zstd_level),
        *([publish_edges(dedup, near.edges)] if dedup.recipe.near is not None else []),
        _groups(dedup, groups, kept),
        _rejects(building, dedup.shards, sketches, zstd_level),
    ]
    counts = _counts(dedup.shards, sketches, decisions, kept)
    return BuildResult(files=files, counts=counts | {"comparisons": comparisons}, decisions={})


_COMPARISONS = (
    "without_words",
    "short",
    "buckets",
    "capped_buckets",
    "proposed",
    "compared",
    "pairs",
    "capped_documents",
    "edges",
)


def numbered_shards(sources: Mapping[str, Artifact], seen: Sequence[SeenStore]) -> list[CorpusShard]:
    """The shards of sources, given by their names, in this order; numbered after what was seen before.

    Raises:
        InputError: more documents than can be numbered.
    """
    shards = corpus_shards(sources, sum(store.documents for store in seen))
    documents = shards[-1].first_number + shards[-1].rows
    if documents > MAX_DOCUMENTS:
        fix = f"deduplicate at most {MAX_DOCUMENTS:,} at a time"
        raise InputError(f"{documents:,} documents", "the corpus", fix)
    return shards


def publish_edges(dedup: DedupRun, runs: Runs) -> OutputFile:
    """All edges in one file, in the order of the later document, then of the other."""
    tables = in_row_groups((_published(run, dedup.seen) for run in runs), EDGE_SCHEMA)
    return write_table(dedup.building.path(EDGES_FILE), EDGES_FILE, tables, EDGE_SCHEMA)


def _published(run: Path, seen: Sequence[SeenStore]) -> pa.Table:
    import pyarrow.compute as pc

    edges = read_columns(run)
    shared, own, other = (edges[name].cast(pa.float64()) for name in ("shared", "shingles", "other_shingles"))
    union = pc.subtract(pc.add(own, other), shared)
    names = ("later", "earlier", "shared", "shingles", "other_shingles")
    ids = (edges["doc_id"], edges["other_doc_id"], _stores_of(numbers(edges["earlier"]), seen))
    columns = [*ids, *(edges[name] for name in names), pc.divide(shared, union), pc.divide(shared, own)]
    return pa.table(columns, schema=EDGE_SCHEMA)


def _stores_of(orders: NDArray[np.uint64], seen: Sequence[SeenStore]) -> pa.Array:
    """The name of the store that each document stands in, or null."""
    bounds = np.array([store.first_number + store.documents for store in seen], np.uint64)
    places = np.searchsorted(bounds, document_numbers(orders), side="right")
    places_or_null = [mask(is_seen(orders)).buffers()[1], pa.py_buffer(places)]
    return strings([store.name for store in seen]).take(pa.Array.from_buffers(pa.int64(), len(orders), places_or_null))


def gather_decisions(building: StagingDir, decisions: Sequence[Receipt], zstd_level: int) -> OutputFile:
    """All decisions in one file, in the order of the corpus."""
    return gather_lines(building, (decision.files[0] for decision in decisions), DECISIONS_FILE, zstd_level)


def _groups(dedup: DedupRun, groups: Sequence[LargeGroup], kept: Sequence[Receipt]) -> OutputFile:
    samples = {
        shard.first_number + int(row): Sample(doc_id, shard.source, beginning)
        for shard, receipt in zip(dedup.shards, kept, strict=True)
        for row, (doc_id, beginning) in receipt.notes[SAMPLES].items()
    }
    for store in dedup.seen:
        wanted = [group.kept for group in groups if store_of(dedup.seen, group.kept) is store]
        for number, (doc_id, source) in documents_of(store, wanted).items():
            samples[number] = Sample(doc_id, source, "", store.name)
    rows = [
        Group(group.gone, samples[group.kept], tuple(samples[number] for number in group.members)) for group in groups
    ]
    data = msgspec.json.encode(rows)
    with DurableFile(dedup.building.path(GROUPS_FILE)) as file:
        file.write(data)
    return OutputFile.plain(GROUPS_FILE, len(rows), file)


def _rejects(
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
    by_source: dict[str, dict[str, int]] = {}
    for shard, sketch, decision, documents in zip(shards, sketches, decisions, kept, strict=True):
        figures = {
            "in": shard.rows,
            "out": documents.counts["documents"],
            "exact_duplicate": decision.counts["exact_duplicates"],
            "near_duplicate": decision.counts["near_duplicates"],
            "of_seen": decision.counts["seen"],
            "rejected": len(sketch.notes[FATAL]),
            "text_bytes": sketch.counts["bytes"] - documents.counts["dropped_bytes"],
            "shards": 1,
        }
        before = by_source.setdefault(shard.source, dict.fromkeys(figures, 0))
        by_source[shard.source] = {name: before[name] + count for name, count in figures.items()}
    total = {name: sum(figures[name] for figures in by_source.values()) for name in next(iter(by_source.values()))}
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
_DOCUMENTS = pa.schema([pa.field(name, pa.string(), nullable=False) for name in ("doc_id", "source")])
_HASHES = pa.schema(
    [
        *(pa.field(name, pa.uint64(), nullable=False) for name in ("high", "low", "order")),
        pa.field("doc_id", pa.string(), nullable=False),
    ]
)
_BITS = pa.schema([pa.field("order", pa.uint64(), nullable=False), pa.field("sketch", pa.binary(), nullable=False)])
_BANDS = pa.schema([pa.field(name, pa.uint64(), nullable=False) for name in ("key", "order")])


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
    shards = corpus_shards({deduplicated.manifest.name: deduplicated})
    with open_run(building, shards, _in_order(recipe), settings) as run:
        sketches = list(run.run("sketch", shards, building))
        _refuse_fatal_rows(shards, sketches)
        files = [_write_documents(run, sketches), _write_hashes(run, sketches)]
        if recipe.near is not None:
            files.append(_write_bands(run, sketches) if recipe.near.minhash else _write_bits(run, sketches))
            files += _write_sets(run, recipe.near.proposer.shingle_words)
    in_order = [
        {"source": source, "documents": sum(shard.rows for shard in shards if shard.source == source)}
        for source in dict.fromkeys(shard.source for shard in shards)
    ]
    return BuildResult(files, {"documents": sum(shard.rows for shard in shards), "sources": in_order}, {})


def _in_order(recipe: DedupRecipe) -> DedupRecipe:
    mode = "exact" if recipe.near is None else "both"
    changes = {"mode": mode, "selection": "first", "quality_column": None}
    return DedupRecipe.from_content(recipe.content() | changes)


def _refuse_fatal_rows(shards: Sequence[CorpusShard], sketches: Sequence[Receipt]) -> None:
    for shard, sketch in zip(shards, sketches, strict=True):
        if sketch.notes[FATAL]:
            what = f"row {sketch.notes[FATAL][0]} kills the process that reads it"
            raise InputError(what, shard.file, "give it more memory, or leave the document out of the corpus")


def _write_documents(run: DedupRun, sketches: Sequence[Receipt]) -> OutputFile:
    tables = (
        pa.table([ids["doc_id"], repeated(shard.source, ids.num_rows)], schema=_DOCUMENTS)
        for shard, sketch in zip(run.shards, sketches, strict=True)
        for ids in map(read_columns, runs_of(run.building, [sketch], IDS))
    )
    return _write(run, DOCUMENTS_FILE, tables, _DOCUMENTS)


def _ranges(run: DedupRun, runs: Runs) -> Iterator[pa.Table]:
    """All rows of runs, in ranges that fit into memory."""
    bounds = even_ranges(rows_of(runs), run.share_bytes // _ROW_BYTES)
    return (read_range(runs, low, high) for low, high in bounds)


def _write_hashes(run: DedupRun, sketches: Sequence[Receipt]) -> OutputFile:
    def in_order(table: pa.Table) -> pa.Table:
        orders = document_numbers(numbers(table["order"]))
        by = column_of(np.lexsort((orders, numbers(table["low"]), numbers(table["high"]))))
        columns = [table["high"], table["low"], column_of(orders), table["doc_id"]]
        return pa.table(columns, schema=_HASHES).take(by)

    return _write(run, HASHES_FILE, map(in_order, _ranges(run, runs_of(run.building, sketches, HASHES))), _HASHES)


def _write_bands(run: DedupRun, sketches: Sequence[Receipt]) -> OutputFile:
    def in_order(table: pa.Table) -> pa.Table:
        columns = sorted_pairs(numbers(table["key"]), document_numbers(numbers(table["order"])))
        return pa.table([column_of(column) for column in columns], schema=_BANDS)

    return _write(run, BANDS_FILE, map(in_order, _ranges(run, runs_of(run.building, sketches, BANDS))), _BANDS)


def _write_bits(run: DedupRun, sketches: Sequence[Receipt]) -> OutputFile:
    tables = (
        pa.table([column_of(document_numbers(numbers(table["order"]))), table["sketch"]], schema=_BITS)
        for table in map(read_columns, runs_of(run.building, sketches, BITS))
    )
    return _write(run, BITS_FILE, tables, _BITS)


def _write_sets(run: DedupRun, shingle_words: int) -> Iterator[OutputFile]:
    members = no_documents(run.documents)
    include(members, np.arange(run.documents, dtype=np.uint64))
    all_of_them = save(members, run.building.path(_MEMBERS))
    work = [ComparedShard(shard, all_of_them, shingle_words, SETS_AREA) for shard in run.shards]
    for receipt in run.run("shingle", work, run.building):
        yield from receipt.files


def _write(run: DedupRun, name: str, tables: Iterable[pa.Table], schema: pa.Schema) -> OutputFile:
    return write_table(run.building.path(name), name, in_row_groups(tables, schema), schema)
