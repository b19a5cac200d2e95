"""Creation of the signature store of a deduplicated corpus."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from pipeline_assets.corpus.corpus_shard import corpus_shards, sum_by_source
from pipeline_assets.corpus.dedup.dedup_corpus import prepare_run
from pipeline_assets.corpus.dedup.dedup_run import DedupRun, files_in, worker_bytes
from pipeline_assets.corpus.dedup.recipe import DedupRecipe
from pipeline_assets.corpus.dedup.signature_store import BANDS_FOLDER, DOCUMENTS_FILE, HASHES_FOLDER, SKETCHES_FOLDER
from pipeline_assets.corpus.dedup.sketches import (
    BANDS_WORK_FOLDER,
    BITS_WORK_FOLDER,
    HASHES_WORK_FOLDER,
    IDS_WORK_FOLDER,
    POISON_ROWS_NOTE,
    sketch_shards,
)
from pipeline_assets.corpus.dedup.sorted_runs import divide_keys
from pipeline_assets.corpus.dedup.verify import write_sets
from pipeline_assets.corpus.document_shards import poison_row_error
from pipeline_assets.corpus.formats.arrow_columns import repeat_text, to_arrow, to_numpy
from pipeline_assets.corpus.formats.parquet_tables import regroup_rows, write_table
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.staging import OutputFile, Receipt, StagingDir
from pipeline_assets.spine.task import Task

_SETS_FOLDER = "shingles"
_SCHEMA = pa.schema([pa.field(name, pa.string(), nullable=False) for name in ("doc_id", "source")])
_ROW_BYTES = 250  # memory per row, with its sorted and its written copy
_STORE_FOLDERS = {HASHES_WORK_FOLDER: HASHES_FOLDER, BANDS_WORK_FOLDER: BANDS_FOLDER, BITS_WORK_FOLDER: SKETCHES_FOLDER}


def sign_corpus(staging: StagingDir, deduplicated: Artifact, recipe: DedupRecipe, settings: RunSettings) -> BuildResult:
    """Write the signatures of a corpus that `recipe` deduplicated.

    `documents.parquet` has the id and source of each document, in order. `hashes/all.parquet` has the hashes of
    normalized texts, sorted. Unless the mode is `exact`, the folder `shingles` has the shingle sets of each shard. With
    `minhash`, `bands/all.parquet` has sorted band keys; with `faiss`, `sketches/all.parquet` has binary sketches.

    Raises:
        InputError: A line is not a Document, or crashes its worker.
    """
    mode = "exact" if recipe.near is None else "both"
    recipe = DedupRecipe.from_content(recipe.content() | {"mode": mode, "selection": "first", "quality_column": None})
    shards = corpus_shards({deduplicated.manifest.name: deduplicated})
    dedup = prepare_run(staging, shards, recipe, settings)
    sketch_receipts = sketch_shards(dedup)
    for shard, sketch in zip(shards, sketch_receipts, strict=True):
        if sketch.notes[POISON_ROWS_NOTE]:
            raise poison_row_error(sketch.notes[POISON_ROWS_NOTE][0], "reading", shard.file)
    documents_file = _write_parquet(dedup, DOCUMENTS_FILE, _document_tables(dedup, sketch_receipts), _SCHEMA)
    files = [documents_file, *_write_runs(dedup, sketch_receipts)]
    if recipe.near is not None:
        files += _write_sets(dedup, recipe.near.proposer.shingle_words)
    by_source = sum_by_source(shards, ({"documents": shard.rows} for shard in shards))
    source_counts = [{"source": source, **counts} for source, counts in by_source.items()]
    return BuildResult(files, {"documents": sum(shard.rows for shard in shards), "sources": source_counts}, {})


def _write_parquet(dedup: DedupRun, name: str, tables: Iterable[pa.Table], schema: pa.Schema) -> OutputFile:
    return write_table(dedup.staging.path(name), name, regroup_rows(tables, schema), schema)


def _document_tables(dedup: DedupRun, sketch_receipts: Sequence[Receipt]) -> Iterator[pa.Table]:
    for shard, sketch in zip(dedup.shards, sketch_receipts, strict=True):
        for ids in map(dedup.read_run, files_in([sketch], IDS_WORK_FOLDER)):
            yield pa.table([ids["doc_id"], repeat_text(shard.source, ids.num_rows)], schema=_SCHEMA)


def _write_runs(dedup: DedupRun, sketch_receipts: Sequence[Receipt]) -> Iterator[OutputFile]:
    """Write each kind of signature as one sorted run, and yield its file."""
    for work_folder, folder in _STORE_FOLDERS.items():
        if runs := files_in(sketch_receipts, work_folder):
            schema = pa.schema([field.with_nullable(False) for field in dedup.read_run(runs[0]).schema])
            ranges = divide_keys(dedup.staging, runs, worker_bytes(dedup.settings) // _ROW_BYTES)
            tables = (_sort_by_key(key_range.table(), schema) for key_range in ranges)
            yield _write_parquet(dedup, f"{folder}/all.parquet", tables, schema)


def _sort_by_key(table: pa.Table, schema: pa.Schema) -> pa.Table:
    order = np.lexsort((to_numpy(table["order"]), to_numpy(table.column(0))))
    return pa.table(table.take(to_arrow(order)).columns, schema=schema)


def _write_sets(dedup: DedupRun, shingle_words: int) -> Iterator[OutputFile]:
    members = (b"\xff" * -(-shard.rows // 8) for shard in dedup.shards)  # all documents
    pairs = zip(dedup.shards, members, strict=True)
    tasks = (Task.bind(write_sets, shard, bits, shingle_words, _SETS_FOLDER) for shard, bits in pairs)
    for receipt in dedup.run_tasks("shingle", tasks):
        yield from receipt.files
