"""Creation of the signature store of a deduplicated corpus."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from pipeline_assets.corpus.corpus_shard import corpus_shards, sum_by_source
from pipeline_assets.corpus.dedup.dedup_corpus import prepare_run
from pipeline_assets.corpus.dedup.dedup_run import DedupRun, files_in
from pipeline_assets.corpus.dedup.recipe import DedupRecipe
from pipeline_assets.corpus.dedup.signature_store import BANDS_FOLDER, DOCUMENTS_FILE, HASHES_FOLDER, SKETCHES_FOLDER
from pipeline_assets.corpus.dedup.sketches import (
    BANDS_AREA,
    BITS_AREA,
    HASHES_AREA,
    IDS_AREA,
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

_SETS_AREA = "shingles"
_SCHEMA = pa.schema([pa.field(name, pa.string(), nullable=False) for name in ("doc_id", "source")])
_ROW_BYTES = 250  # memory per row, with its sorted and its written copy
_FOLDERS_BY_AREA = {HASHES_AREA: HASHES_FOLDER, BANDS_AREA: BANDS_FOLDER, BITS_AREA: SKETCHES_FOLDER}


def sign_corpus(staging: StagingDir, deduplicated: Artifact, recipe: DedupRecipe, settings: RunSettings) -> BuildResult:
    """Write the signatures of a corpus that `recipe` deduplicated.

    Files: `documents.parquet` has the id and source of each document, in order. `hashes/all.parquet` has the hashes of
    normalized texts, sorted. The other files are missing if the mode is `exact`: the folder `shingles` has the shingle
    sets of each shard; with `minhash`, `bands/all.parquet` has sorted band keys; with `faiss`, `sketches/all.parquet`
    has binary sketches.

    Raises:
        InputError: A line is not a Document, or crashes its worker.
    """
    mode = "exact" if recipe.near is None else "both"
    recipe = DedupRecipe.from_content(recipe.content() | {"mode": mode, "selection": "first", "quality_column": None})
    shards = corpus_shards({deduplicated.manifest.name: deduplicated})
    run = prepare_run(staging, shards, recipe, settings)
    sketched = sketch_shards(run)
    for shard, sketch in zip(shards, sketched, strict=True):
        if sketch.notes[POISON_ROWS_NOTE]:
            raise poison_row_error(sketch.notes[POISON_ROWS_NOTE][0], "reading", shard.file)
    files = [_write_parquet(run, DOCUMENTS_FILE, _document_tables(run, sketched), _SCHEMA), *_write_runs(run, sketched)]
    if recipe.near is not None:
        files += _write_sets(run, recipe.near.proposer.shingle_words)
    by_source = sum_by_source(shards, ({"documents": shard.rows} for shard in shards))
    source_counts = [{"source": source, **counts} for source, counts in by_source.items()]
    return BuildResult(files, {"documents": sum(shard.rows for shard in shards), "sources": source_counts}, {})


def _write_parquet(run: DedupRun, name: str, tables: Iterable[pa.Table], schema: pa.Schema) -> OutputFile:
    return write_table(run.staging.path(name), name, regroup_rows(tables, schema), schema)


def _document_tables(run: DedupRun, sketched: Sequence[Receipt]) -> Iterator[pa.Table]:
    for shard, sketch in zip(run.shards, sketched, strict=True):
        for ids in map(run.read_run, files_in([sketch], IDS_AREA)):
            yield pa.table([ids["doc_id"], repeat_text(shard.source, ids.num_rows)], schema=_SCHEMA)


def _write_runs(run: DedupRun, sketched: Sequence[Receipt]) -> Iterator[OutputFile]:
    """Write each kind of signature as one sorted run, and yield its file."""
    for area, folder in _FOLDERS_BY_AREA.items():
        if runs := files_in(sketched, area):
            schema = pa.schema([field.with_nullable(False) for field in run.read_run(runs[0]).schema])
            ranges = divide_keys(run.staging, runs, run.worker_bytes // _ROW_BYTES)
            tables = (_sort_by_key(key_range.table(), schema) for key_range in ranges)
            yield _write_parquet(run, f"{folder}/all.parquet", tables, schema)


def _sort_by_key(table: pa.Table, schema: pa.Schema) -> pa.Table:
    order = np.lexsort((to_numpy(table["order"]), to_numpy(table.column(0))))
    return pa.table(table.take(to_arrow(order)).columns, schema=schema)


def _write_sets(run: DedupRun, shingle_words: int) -> Iterator[OutputFile]:
    members = (b"\xff" * -(-shard.rows // 8) for shard in run.shards)  # all documents
    pairs = zip(run.shards, members, strict=True)
    tasks = (Task.bind(write_sets, shard, bits, shingle_words, _SETS_AREA) for shard, bits in pairs)
    for receipt in run.run_tasks("shingle", tasks):
        yield from receipt.files
