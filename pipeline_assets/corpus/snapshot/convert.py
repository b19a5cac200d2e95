"""The stage `snapshot`: row groups of a source → one Document shard, its ids and its rejects."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline_assets.corpus.document import Document, derived_doc_id
from pipeline_assets.corpus.document_shards.shard_writer import ShardWriter
from pipeline_assets.corpus.filters.column_rules import first_failed
from pipeline_assets.corpus.formats.arrow import mask
from pipeline_assets.corpus.readers.column_paths import take_column
from pipeline_assets.corpus.readers.column_values import column_values, faulty_rows
from pipeline_assets.corpus.readers.hub_parquet import open_row_groups
from pipeline_assets.corpus.readers.row_faults import text_fault
from pipeline_assets.corpus.snapshot.fetch import LocalPiece, SnapshotShard
from pipeline_assets.corpus.snapshot.recipe import SnapshotRecipe
from pipeline_assets.corpus.spine.building import BuildFolder, Receipt
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.rejects import Reject
from pipeline_assets.corpus.spine.stage import KILLED_WORKER, Window

_BATCH_ROWS = 1024


@dataclass(frozen=True)
class RowBatch:
    """Rows of one file that passed the rules: their numbers in it, and their columns."""

    file: str
    rows: Sequence[int]
    columns: pa.RecordBatch


def convert_shard(
    shard: SnapshotShard, window: Window, folder: BuildFolder, recipe: SnapshotRecipe, zstd_level: int
) -> Receipt:
    """One shard: rows that pass the rules become Documents, bad rows become rejects, all are counted.

    Counts: as `ShardWriter`, and `rows` read, `dropped/<rule>`.
    """
    with ShardWriter(folder, shard.name, zstd_level) as writer:
        for batch in row_batches(shard, window, recipe, writer):
            _write_documents(batch, recipe, writer)
    return writer.receipt()


def row_batches(
    shard: SnapshotShard, window: Window, recipe: SnapshotRecipe, writer: ShardWriter
) -> Iterator[RowBatch]:
    """Rows of the shard that pass the rules; the others are counted by the writer, and those that kill a worker kept
    aside, unread.

    Raises:
        InputError: a row group's bytes can't be read.
    """
    first_row = 0
    for local in shard.pieces:
        group = local.piece.group
        for seen, batch in _batches(local, f"{recipe.dataset}@{recipe.revision}:{group.file.path}"):
            rules = recipe.row_rules(batch.schema.names)
            numbers = np.arange(seen, seen + batch.num_rows)
            wanted = _in_window(numbers + first_row, window, group.file.path, group.first_row - first_row, writer)
            writer.count("rows", int(wanted.sum()))
            failed = first_failed(rules, batch)
            for number, rule in enumerate(rules):
                writer.count(f"dropped/{rule.text}", int((failed[wanted] == number).sum()))
            kept = wanted & (failed < 0)
            rows = (numbers[kept] + group.first_row).tolist()
            yield RowBatch(group.file.path, rows, batch.filter(mask(kept)))
        first_row += local.piece.rows


def _batches(local: LocalPiece, where: str) -> Iterator[tuple[int, pa.RecordBatch]]:
    """(rows before it in the row group, batch), cut at the piece's last row.

    Raises:
        InputError: the row group's bytes can't be read.
    """
    group, rows = local.piece.group, local.piece.rows
    try:
        with open_row_groups(group.file, local.spans) as parquet:
            seen = 0
            for batch in parquet.iter_batches(_BATCH_ROWS, row_groups=[group.number], use_threads=False):
                yield seen, batch.slice(0, rows - seen)
                seen += batch.num_rows
                if seen >= rows:
                    return
    except (pa.ArrowException, OSError) as error:
        for span in local.spans:  # damaged bytes must not be what the next try finds in the cache
            span.local.unlink(missing_ok=True)
        what = f"row group {group.number} can't be read ({' '.join(str(error).split())})"
        raise InputError(what, where, "the file is damaged: pin another commit, or leave it out of `files`") from None


def _in_window(
    rows: NDArray[np.int64], window: Window, file: str, to_file_row: int, writer: ShardWriter
) -> NDArray[np.bool_]:
    """Which rows of the shard are read; those known to kill a worker are rejected here, unread."""
    stop = np.iinfo(np.int64).max if window.stop is None else window.stop
    inside = (rows >= window.start) & (rows < stop)
    fatal = inside & np.isin(rows, sorted(window.fatal))
    for row in rows[fatal].tolist():
        writer.count("rows")
        writer.reject(Reject(file, row + to_file_row, KILLED_WORKER))
    return inside & ~fatal


def _write_documents(batch: RowBatch, recipe: SnapshotRecipe, writer: ShardWriter) -> None:
    """The rows as lines; those without usable text, as rejects."""
    columns, rows, file = recipe.columns, batch.rows, batch.file
    values = {name: column_values(batch.columns.column(name)) for name in batch.columns.schema.names}
    damaged = faulty_rows(list(values.values()))
    texts = take_column(values, columns.text)
    ids = take_column(values, columns.id) if columns.id is not None else [None] * len(rows)
    created = take_column(values, columns.created_at) if columns.created_at is not None else [None] * len(rows)
    values |= {"source_file": [file] * len(rows), "source_row": list(rows)}
    documents: list[Document] = []
    metas = zip(*values.values(), strict=True)
    for number, (row, text, doc_id, created_at, meta) in enumerate(zip(rows, texts, ids, created, metas, strict=True)):
        fault = damaged.get(number) or text_fault(text, doc_id)
        if fault is not None:
            writer.reject(Reject(file, row, fault.reason, fault.detail))
            continue
        text = writer.without_nul(text)
        if not text:
            writer.reject(Reject(file, row, "empty_text", "nothing but NUL"))
            continue
        document = Document(
            text=text,
            source=recipe.source,
            domain=recipe.domain,
            doc_id=doc_id or derived_doc_id(recipe.dataset, recipe.config, recipe.split, text),
            license_tag=recipe.license_tag,
            created_at=None if created_at is None else str(created_at),
            meta=dict(zip(values, meta, strict=True)),
        )
        documents.append(document)
    writer.write(documents)
