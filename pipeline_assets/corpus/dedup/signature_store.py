"""The stage `signatures`: a deduplicated corpus → what its documents are compared by, for corpora that come later.

A store holds all that a deduplication asks of documents that it has seen: their ids, the hashes of their normalised
texts, the keys of their bands, their sets of shingles. What is deduplicated against it is what would be left of it if
both had been deduplicated together, the store's documents first; and no text of them is read again.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from pipeline_assets.corpus.dedup.corpus_shard import CorpusShard, corpus_shards
from pipeline_assets.corpus.dedup.dedup_run import DedupRun, open_run
from pipeline_assets.corpus.dedup.order import document_numbers, include, no_documents, save
from pipeline_assets.corpus.dedup.pairs_of_keys import sorted_pairs
from pipeline_assets.corpus.dedup.recipe import DedupRecipe
from pipeline_assets.corpus.dedup.seen import BANDS_FILE, BITS_FILE, DOCUMENTS_FILE, HASHES_FILE, SETS_AREA
from pipeline_assets.corpus.dedup.settings import DedupSettings
from pipeline_assets.corpus.dedup.shingle_sets import ComparedShard
from pipeline_assets.corpus.dedup.sketches import BANDS, BITS, FATAL, HASHES, IDS
from pipeline_assets.corpus.dedup.sorted_runs import even_ranges, read_range, rows_of
from pipeline_assets.corpus.dedup.steps import Runs, runs_of
from pipeline_assets.corpus.formats.arrow import column_of, numbers, repeated
from pipeline_assets.corpus.formats.parquet import in_row_groups, read_columns, write_table
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.building import Building, OutputFile, Receipt
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.sealing import WORK
from pipeline_assets.corpus.spine.target import Content

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


def sign_corpus(building: Building, deduplicated: Artifact, recipe: DedupRecipe, settings: DedupSettings) -> Content:
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
    return Content(files, {"documents": sum(shard.rows for shard in shards), "sources": in_order}, {})


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
    return _write(run.building, DOCUMENTS_FILE, tables, _DOCUMENTS)


def _write_hashes(run: DedupRun, sketches: Sequence[Receipt]) -> OutputFile:
    return _write(run.building, HASHES_FILE, _sorted_hashes(run, runs_of(run.building, sketches, HASHES)), _HASHES)


def _sorted_hashes(run: DedupRun, runs: Runs) -> Iterator[pa.Table]:
    for low, high in even_ranges(rows_of(runs), run.settings.share_bytes // _ROW_BYTES):
        table = read_range(runs, low, high)
        orders = document_numbers(numbers(table["order"]))
        by = column_of(np.lexsort((orders, numbers(table["low"]), numbers(table["high"]))))
        columns = [table["high"], table["low"], column_of(orders), table["doc_id"]]
        yield pa.table(columns, schema=_HASHES).take(by)


def _write_bands(run: DedupRun, sketches: Sequence[Receipt]) -> OutputFile:
    return _write(run.building, BANDS_FILE, _sorted_bands(run, runs_of(run.building, sketches, BANDS)), _BANDS)


def _sorted_bands(run: DedupRun, runs: Runs) -> Iterator[pa.Table]:
    for low, high in even_ranges(rows_of(runs), run.settings.share_bytes // _ROW_BYTES):
        table = read_range(runs, low, high)
        columns = sorted_pairs(numbers(table["key"]), document_numbers(numbers(table["order"])))
        yield pa.table([column_of(column) for column in columns], schema=_BANDS)


def _write_bits(run: DedupRun, sketches: Sequence[Receipt]) -> OutputFile:
    tables = (
        pa.table([column_of(document_numbers(numbers(table["order"]))), table["sketch"]], schema=_BITS)
        for table in map(read_columns, runs_of(run.building, sketches, BITS))
    )
    return _write(run.building, BITS_FILE, tables, _BITS)


def _write_sets(run: DedupRun, shingle_words: int) -> Iterator[OutputFile]:
    members = no_documents(run.documents)
    include(members, np.arange(run.documents, dtype=np.uint64))
    all_of_them = save(members, run.building.path(_MEMBERS))
    work = [ComparedShard(shard, all_of_them, shingle_words, SETS_AREA) for shard in run.shards]
    for receipt in run.run("shingle", work, run.building):
        yield from receipt.files


def _write(building: Building, name: str, tables: Iterator[pa.Table], schema: pa.Schema) -> OutputFile:
    return write_table(building.path(name), name, in_row_groups(tables, schema), schema)
