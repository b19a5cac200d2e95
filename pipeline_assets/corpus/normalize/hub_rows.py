"""The stage `normalize` for row groups of a hub dataset."""

import functools

from pipeline_assets.corpus.document import DeriveId, Document, derived_doc_id
from pipeline_assets.corpus.document_shards.shard_writer import ShardWriter
from pipeline_assets.corpus.licences import LicenceTable
from pipeline_assets.corpus.normalize.converted import Converted, NormalizeSettings, convert_shards
from pipeline_assets.corpus.normalize.outcomes import write_outcomes
from pipeline_assets.corpus.readers.column_map import LicensedColumns, another_column
from pipeline_assets.corpus.readers.column_paths import column_paths, has_column
from pipeline_assets.corpus.readers.column_values import column_values, faulty_rows
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.readers.local_rows import RowMap, SourceLabels
from pipeline_assets.corpus.snapshot.convert import RowBatch, row_batches
from pipeline_assets.corpus.snapshot.fetch import SnapshotShard, fetch_pieces, shards_of
from pipeline_assets.corpus.snapshot.plan import hub_inputs, plan_snapshot
from pipeline_assets.corpus.snapshot.recipe import SnapshotRecipe
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.building import BuildFolder, Building, Receipt
from pipeline_assets.corpus.spine.errors import InputError, UsageError
from pipeline_assets.corpus.spine.rejects import Reject
from pipeline_assets.corpus.spine.stage import Window


def normalize_rows(
    shard: SnapshotShard,
    window: Window,
    folder: BuildFolder,
    recipe: SnapshotRecipe,
    columns: LicensedColumns,
    licences: LicenceTable,
    zstd_level: int,
) -> Receipt:
    """One shard of a hub source; counts as `convert_shard` has them.

    Raises:
        InputError: a row group can't be read, or has no column for the licence.
    """
    derive_id = derive_from(recipe)
    with ShardWriter(folder, shard.name, zstd_level) as writer:
        for batch in row_batches(shard, window, recipe, writer):
            write_outcomes(_documents(batch, recipe, columns, derive_id), writer, derive_id, licences)
    return writer.receipt()


def convert_hub_rows(
    building: Building,
    raw: Artifact,
    hub: HubFiles,
    recipe: SnapshotRecipe,
    columns: LicensedColumns,
    licences: LicenceTable,
    settings: NormalizeSettings,
) -> Converted:
    """The row groups that the raw artifact names, from the cache; what is no more there is fetched again.

    Raises:
        InputError: from the hub, or the listing isn't that of the raw artifact.
    """
    log_every_s = settings.engine.log_every_s
    plan = plan_snapshot(hub, recipe, settings.fetch_threads, log_every_s)
    if hub_inputs(recipe, plan) != raw.manifest.identity.inputs:
        raise InputError("it names other files or row groups than the hub does now", raw.folder, "build it again")
    pieces = fetch_pieces(hub, recipe, plan, settings.fetch_threads, log_every_s)
    shards = shards_of(plan, pieces, recipe.shard_text_bytes)
    work = functools.partial(
        normalize_rows, recipe=recipe, columns=columns, licences=licences, zstd_level=settings.zstd_level
    )
    named = convert_shards(building, work, shards, settings)
    has_language = recipe.language is not None and plan.has_language
    decisions = {"language_filter_applied": has_language, "dumps": plan.dumps()}
    return Converted(named, derive_from(recipe), decisions)


def derive_from(recipe: SnapshotRecipe) -> DeriveId:
    """The rule for ids of rows without one."""
    return functools.partial(derived_doc_id, recipe.dataset, recipe.config, recipe.split)


def _documents(
    batch: RowBatch, recipe: SnapshotRecipe, columns: LicensedColumns, derive_id: DeriveId
) -> list[Document | Reject]:
    names = batch.columns.schema.names
    if columns.license is not None and not has_column(batch.columns.schema, columns.license):
        what = f"there is no column `{columns.license}`; it has {', '.join(column_paths(batch.columns.schema))}"
        raise UsageError(what, f"{recipe.dataset}@{recipe.revision}:{batch.file}", another_column("license"))
    labels = SourceLabels(source=recipe.source, domain=recipe.domain, license_tag=recipe.license_tag)
    document = RowMap(columns, labels, batch.file, derive_id).document
    values = [column_values(column) for column in batch.columns.columns]
    faults = faulty_rows(values)
    rows = zip(batch.rows, zip(*values, strict=True), strict=True)
    return [
        Reject(batch.file, row, fault.reason, fault.detail)
        if (fault := faults.get(number)) is not None
        else document(dict(zip(names, cells, strict=True)), row)
        for number, (row, cells) in enumerate(rows)
    ]
