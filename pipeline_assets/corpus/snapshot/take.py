"""Takes a snapshot: from a recipe to the content of a sealed artifact."""

import dataclasses
import functools
from collections.abc import Sequence

from pipeline_assets.corpus.document_shards import (
    NORMALISATION,
    read_rejects,
)
from pipeline_assets.corpus.normalize.converted import Converted, NormalizeSettings, finish
from pipeline_assets.corpus.planning.outcome import as_json
from pipeline_assets.corpus.planning.snapshot_forecast import forecast_snapshot
from pipeline_assets.corpus.planning.track_record import TrackRecord
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.snapshot.convert import convert_shard, derive_from
from pipeline_assets.corpus.snapshot.plan import (
    SnapshotShard,
    bytes_to_fetch,
    fetch_pieces,
    hub_inputs,
    log_plan,
    plan_snapshot,
    shards_of,
)
from pipeline_assets.corpus.snapshot.recipe import SnapshotRecipe
from pipeline_assets.corpus.spine.building import Building, Receipt
from pipeline_assets.corpus.spine.engine import run_stage
from pipeline_assets.corpus.spine.manifest import StageVersion
from pipeline_assets.corpus.spine.rejects import check_rejects
from pipeline_assets.corpus.spine.target import Content
from pipeline_assets.corpus.spine.usage import Laps

SNAPSHOT_STAGE = StageVersion("snapshot", 2)
CONVERT_STAGE = "convert"


def take_snapshot(
    building: Building, hub: HubFiles, recipe: SnapshotRecipe, settings: NormalizeSettings, record: TrackRecord
) -> Content:
    """Document shards and rejects in the building folder, and what the manifest says of them.

    Args:
        record: of earlier builds, of which the costs are planned.
    Raises:
        InputError: from the hub; too many rejects; NUL characters in more than 1 % of the documents.
    """
    laps = Laps(lambda: hub.traffic.bytes)
    plan = plan_snapshot(hub, recipe, settings.fetch_threads, settings.engine.log_every_s)
    log_plan(plan, recipe.source)
    forecast = forecast_snapshot(plan, recipe, bytes_to_fetch(hub, recipe, plan), record)
    laps.end("plan")
    pieces = fetch_pieces(hub, recipe, plan, settings.fetch_threads, settings.engine.log_every_s)
    laps.end("fetch")
    shards = shards_of(plan, pieces, recipe.shard_text_bytes)
    adopted = building.finished_shards(CONVERT_STAGE)
    converted = _convert(building, shards, recipe, settings, plan.rows)
    laps.end("convert")
    decisions = {
        "english_filter_applied": recipe.language is not None and plan.has_language,
        "doc_id": f"column {recipe.columns.id}" if recipe.columns.id else "sha256(dataset, config, split, text)",
        "normalisation": NORMALISATION,
        "dumps": plan.dumps(),
    }
    of_source = Converted(converted, derive_from(recipe), decisions, words=str)
    fix = "loosen `rules` or `language` in the recipe"
    content = finish(building, of_source, recipe.max_reject_fraction, settings, recipe.dataset, fix)
    laps.end("publish")
    left = 1 - adopted / max(len(forecast.shards), 1)
    provenance = {
        "planned": as_json(forecast.figures(record, settings.engine, left)),
        "bytes_fetched": laps.counted["fetch"],
        "bytes_fetched_to_plan": laps.counted["plan"],
        "source_text_bytes": forecast.source_text_bytes,
        "adopted_shards": adopted,
        "seconds_of": laps.seconds,
    }
    return dataclasses.replace(content, outside=hub_inputs(recipe, plan), provenance=provenance)


def _convert(
    building: Building, shards: Sequence[SnapshotShard], recipe: SnapshotRecipe, settings: NormalizeSettings, rows: int
) -> dict[str, Receipt]:
    """Receipts of converted shards by name; stops as soon as the rejects are too many, whatever is still to come."""
    work = functools.partial(convert_shard, recipe=recipe, zstd_level=settings.zstd_level)
    receipts: list[Receipt] = []
    rejected = 0
    for receipt in run_stage(CONVERT_STAGE, work, shards, building, settings.engine):
        receipts.append(receipt)
        rejected += sum(count for name, count in receipt.counts.items() if name.startswith("rejected/"))
        check_rejects(rejected, rows, recipe.max_reject_fraction, read_rejects(building, receipts), building.target)
    return {shard.name: receipt for shard, receipt in zip(shards, receipts, strict=True)}
