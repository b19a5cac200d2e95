"""Takes a snapshot: from a recipe to the content of a sealed artifact."""

import dataclasses
import functools
from collections.abc import Sequence

from pipeline_assets.corpus.document_shards import (
    NORMALISATION,
    read_rejects,
)
from pipeline_assets.corpus.normalize.converted import Converted, finish
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.snapshot.convert import convert_shard, derive_from
from pipeline_assets.corpus.snapshot.plan import (
    SnapshotShard,
    fetch_snapshot,
    hub_inputs,
    shards_of,
)
from pipeline_assets.corpus.snapshot.recipe import SnapshotRecipe
from pipeline_assets.corpus.spine.engine import RunSettings, run_stage
from pipeline_assets.corpus.spine.errors import IN_RECIPE, key
from pipeline_assets.corpus.spine.ledger import Ledger, check_rejects
from pipeline_assets.corpus.spine.manifest import StageVersion
from pipeline_assets.corpus.spine.staging import Receipt, StagingDir
from pipeline_assets.corpus.spine.target import BuildResult

SNAPSHOT_STAGE = StageVersion("snapshot", 3)
_CONVERT = "convert"


def take_snapshot(building: StagingDir, hub: HubFiles, recipe: SnapshotRecipe, settings: RunSettings) -> BuildResult:
    """Document shards and rejects in the building folder, and what the manifest says of them.

    Raises:
        InputError: from the hub; too many rejects; NUL characters in more than 1 % of the documents.
    """
    plan, pieces, fetched = fetch_snapshot(hub, recipe, settings.fetch_threads, settings.log_every_s)
    shards = shards_of(plan, pieces, recipe.shard_text_bytes)
    decisions = {
        "english_filter_applied": recipe.language is not None and plan.has_language,
        "doc_id": f"column {recipe.columns.id}" if recipe.columns.id else "sha256(dataset, config, split, text)",
        "normalisation": NORMALISATION,
        "dumps": plan.dumps(),
    }
    converted = Converted(
        _convert(building, shards, recipe, settings, plan.rows), derive_from(recipe), decisions, words=str
    )
    fix = f"loosen {key('rules')} or {key('language', IN_RECIPE)}"
    content = finish(building, converted, recipe.max_reject_fraction, settings, recipe.dataset, fix)
    return dataclasses.replace(content, outside=hub_inputs(recipe, plan), provenance=fetched)


def _convert(
    building: StagingDir,
    shards: Sequence[SnapshotShard],
    recipe: SnapshotRecipe,
    settings: RunSettings,
    rows: int,
) -> dict[str, Receipt]:
    """Receipts of converted shards by name; stops as soon as the rejects are too many, whatever is still to come."""
    work = functools.partial(convert_shard, recipe=recipe, zstd_level=settings.zstd_level)
    receipts: list[Receipt] = []
    rejected = 0
    for receipt in run_stage(_CONVERT, work, shards, building, settings):
        receipts.append(receipt)
        rejected += Ledger.of(receipt.counts).all_rejected
        check_rejects(rejected, rows, recipe.max_reject_fraction, read_rejects(building, receipts), building.target)
    return {shard.name: receipt for shard, receipt in zip(shards, receipts, strict=True)}
