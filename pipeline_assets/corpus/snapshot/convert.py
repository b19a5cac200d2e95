"""Conversion of rows of a hub dataset to Document shards."""

import dataclasses
import functools
import itertools
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline_assets.corpus.converted_shards import NORMALIZATION_NOTE, ShardWriter, read_rejects
from pipeline_assets.corpus.filters.column_rules import first_failed_rules
from pipeline_assets.corpus.formats.arrow_columns import bool_column
from pipeline_assets.corpus.licences import licence_table
from pipeline_assets.corpus.normalize.converted import ConvertedSource, finish_source, write_outcomes
from pipeline_assets.corpus.normalize.misnamed_columns import count_fields_with_values
from pipeline_assets.corpus.normalize.row_converter import DocumentOrReject, RowConverter
from pipeline_assets.corpus.readers.column_recipe import LicensedColumns
from pipeline_assets.corpus.readers.columns import check_columns, convert_batch
from pipeline_assets.corpus.readers.faults import Row
from pipeline_assets.corpus.readers.hub_cache import delete_spans
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.readers.hub_parquet import open_row_groups
from pipeline_assets.corpus.removals import NO_REMOVALS, Removals
from pipeline_assets.corpus.snapshot.convert_lines import convert_lines
from pipeline_assets.corpus.snapshot.fetch import FetchedPiece, SnapshotShard, fetch_snapshot, plan_shards
from pipeline_assets.corpus.snapshot.plan import hub_inputs, is_json_lines
from pipeline_assets.corpus.snapshot.recipe import SnapshotRecipe
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.engine import COMPRESSION_RATIO, RunSettings, limit_workers, run_stage
from pipeline_assets.spine.errors import InputError, one_line
from pipeline_assets.spine.ledger import Ledger, check_rejects, dropped_key
from pipeline_assets.spine.manifest import StageVersion
from pipeline_assets.spine.rejects import Reject
from pipeline_assets.spine.stage import KILLED_WORKER, Window
from pipeline_assets.spine.staging import Receipt, StagingDir, StagingView

SNAPSHOT_STAGE = StageVersion("snapshot", 3)
_BATCH_ROWS = 1024


def take_snapshot(
    staging: StagingDir, hub: HubFiles, recipe: SnapshotRecipe, settings: RunSettings, removals: Removals = NO_REMOVALS
) -> BuildResult:
    """Fetch the rows of a snapshot, and convert them to Document shards and rejects.

    The limit on rejects is checked after each shard, so that a bad source fails early.
    """
    plan, pieces, fetched = fetch_snapshot(hub, recipe, settings)
    shards, receipts, rejected = plan_shards(pieces, recipe.shard_text_bytes), list[Receipt](), 0
    work = functools.partial(convert_shard, recipe=recipe, zstd_level=settings.zstd_level)
    settings = limit_workers(staging, settings, [shard.text_bytes // COMPRESSION_RATIO for shard in shards])
    for receipt in run_stage("convert", work, shards, staging, settings):
        receipts.append(receipt)
        rejected += Ledger.from_counts(receipt.counts).total_rejected
        rejects = read_rejects(staging, receipts)
        check_rejects(rejected, plan.rows, recipe.max_reject_fraction, rejects, staging.target)
    decisions = {
        "english_filter_applied": recipe.language is not None and plan.has_language_column,
        "doc_id": f"column {recipe.columns.id}" if recipe.columns.id else "sha256(dataset, config, split, text)",
        "normalisation": NORMALIZATION_NOTE,
        "dumps": plan.count_by_dump(),
    }
    named = {shard.name: receipt for shard, receipt in zip(shards, receipts, strict=True)}
    converted = ConvertedSource(named, recipe.derive_id, decisions, reject_formatter=str)
    fix = "loosen `rules` or `language` in the recipe"
    limit, where = recipe.max_reject_fraction, recipe.dataset
    content = finish_source(staging, converted, limit, settings, where, fix, removals)
    provenance = {**content.provenance, **fetched}
    return dataclasses.replace(content, external_inputs=hub_inputs(recipe, plan), provenance=provenance)


def convert_shard(
    shard: SnapshotShard,
    window: Window,
    folder: StagingView,
    recipe: SnapshotRecipe,
    zstd_level: int,
    columns: LicensedColumns | None = None,
) -> Receipt:
    """Convert the rows of one shard to Documents; drop rows that fail a rule.

    If `columns` is set, it replaces the recipe's columns, and a licence that a row states becomes a tag of the licence
    table. The receipt has `ShardWriter`'s counts and, in addition, `rows` (read) and `dropped/<rule>`. With `columns`,
    the receipt also has the count `found/<field>` = 1 for each Document field with a value.
    """
    first_row, fields, licences = 0, set[str](), licence_table() if columns else None
    with ShardWriter(folder, shard.name, zstd_level) as writer:
        for fetched in shard.pieces:
            file = fetched.piece.group.file
            converter = RowConverter(columns or recipe.columns, recipe, file.path, fields_with_values=fields)
            convert = convert_lines if is_json_lines(file) else _convert_parquet
            outcomes = convert(fetched, window.relative_to(first_row), recipe, converter, writer)
            write_outcomes(outcomes, writer, recipe.derive_id, licences)
            first_row += fetched.piece.rows
        if columns is not None:
            count_fields_with_values(fields, writer)
    return writer.receipt()


def _convert_parquet(
    fetched_piece: FetchedPiece, window: Window, recipe: SnapshotRecipe, converter: RowConverter, writer: ShardWriter
) -> Iterator[DocumentOrReject]:
    """Yield the Documents and rejects of a Parquet piece; count read and dropped rows."""
    group = fetched_piece.piece.group
    path, where = group.file.path, recipe.input_name(group.file.path)
    stop = np.iinfo(np.int64).max if window.stop is None else window.stop
    for batch_start, batch in _read_batches(fetched_piece, where):
        if isinstance(converter.columns, LicensedColumns):
            check_columns(batch.schema, [("license", converter.columns.license)], where)
        rows = np.arange(batch_start, batch_start + batch.num_rows)  # in the row group
        in_window = (rows >= window.start) & (rows < stop)
        is_poison = in_window & np.isin(rows, sorted(window.poison_rows))
        writer.count("rows", int(in_window.sum()))
        for row_number in (rows[is_poison] + group.first_row).tolist():
            yield Reject(path, row_number, KILLED_WORKER)
        rules, is_read = recipe.row_rules(batch.schema.names), in_window & ~is_poison
        failed = first_failed_rules(rules, batch)
        for number, rule in enumerate(rules):
            writer.count(dropped_key(rule.text), int((failed[is_read] == number).sum()))
        kept = is_read & (failed < 0)
        numbers = (rows[kept] + group.first_row).tolist()
        for number, row in zip(numbers, _convert_kept(batch, kept), strict=True):
            yield converter.to_document(row, number)


def _convert_kept(batch: pa.RecordBatch, kept: NDArray[np.bool_]) -> Iterator[Row]:
    """Yield the kept rows of a batch in the form that `convert_batch` yields."""
    try:
        return convert_batch(batch.filter(bool_column(kept)))
    except pa.ArrowNotImplementedError:  # Arrow cannot filter views, such as `string_view`; it slices runs of kept rows
        runs = np.flatnonzero(np.diff(kept, prepend=False, append=False)).reshape(-1, 2).tolist()
        return itertools.chain.from_iterable(convert_batch(batch.slice(start, stop - start)) for start, stop in runs)


def _read_batches(fetched_piece: FetchedPiece, where: str) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield a row group's batches, each with the number of its first row in the group."""
    group, rows = fetched_piece.piece.group, fetched_piece.piece.rows
    try:
        with open_row_groups(group.file, fetched_piece.spans) as parquet:
            seen = 0
            for batch in parquet.iter_batches(_BATCH_ROWS, row_groups=[group.number], use_threads=False):
                yield seen, batch.slice(0, rows - seen)
                seen += batch.num_rows
                if seen >= rows:
                    return
    except (pa.ArrowException, OSError) as error:
        delete_spans(fetched_piece.spans)
        what = f"row group {group.number} cannot be read ({one_line(error)})"
        raise InputError(what, where, "the file is damaged: pin another commit, or exclude it from `files`") from None
