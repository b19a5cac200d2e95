"""Conversion of the hub rows that a raw pin lists."""

import functools

from pipeline_assets.corpus.normalize.converted import ConvertedSource
from pipeline_assets.corpus.normalize.misnamed_columns import columns_without_values
from pipeline_assets.corpus.normalize.stage import convert_shards
from pipeline_assets.corpus.readers.column_recipe import LicensedColumns
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.snapshot.convert import convert_shard
from pipeline_assets.corpus.snapshot.fetch import fetch_pieces, plan_shards
from pipeline_assets.corpus.snapshot.plan import hub_inputs, is_json_lines, plan_snapshot
from pipeline_assets.corpus.snapshot.recipe import SnapshotRecipe
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.engine import COMPRESSION_RATIO, RunSettings, limit_workers
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.staging import StagingDir, total_counts


def convert_hub_rows(
    staging: StagingDir,
    raw_pin: Artifact,
    hub: HubFiles,
    recipe: SnapshotRecipe,
    columns: LicensedColumns,
    settings: RunSettings,
) -> ConvertedSource:
    """Fetch the hub rows that `raw_pin` lists, and convert them to Documents.

    Raise InputError if the hub's files or row groups differ from the pin's.
    """
    pinned = raw_pin.manifest.identity.inputs
    plan = plan_snapshot(hub, recipe, settings, pinned)
    if hub_inputs(recipe, plan) != pinned:
        what = "files or row groups differ from those on the hub"
        raise InputError(what, raw_pin.folder, "build this artifact again")
    pieces = fetch_pieces(hub, recipe, plan, settings)
    work = functools.partial(convert_shard, recipe=recipe, columns=columns, zstd_level=settings.zstd_level)
    shards = plan_shards(pieces, recipe.shard_text_bytes)
    settings = limit_workers(staging, settings, [shard.text_bytes // COMPRESSION_RATIO for shard in shards])
    named = convert_shards(staging, work, shards, settings)
    has_language = recipe.language is not None and plan.has_language_column
    decisions = {"language_filter_applied": has_language, "dumps": plan.count_by_dump()}
    missing = columns_without_values(columns, total_counts(named.values())) if is_json_lines(plan.listing[0]) else {}
    return ConvertedSource(named, recipe.derive_id, decisions | missing)
