"""Takes a snapshot: from a recipe to the content of a sealed artifact."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pipeline_assets.corpus.document import derived_doc_id
from pipeline_assets.corpus.document_shards.ledger import check_documents, document_counts
from pipeline_assets.corpus.document_shards.publish import gather_rejects, publish, read_rejects
from pipeline_assets.corpus.document_shards.shard_writer import NORMALISATION
from pipeline_assets.corpus.planning.outcome import as_json
from pipeline_assets.corpus.planning.snapshot_forecast import SnapshotForecast, forecast_snapshot
from pipeline_assets.corpus.planning.track_record import TrackRecord
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.snapshot.convert import convert_shard
from pipeline_assets.corpus.snapshot.fetch import SnapshotShard, bytes_to_fetch, fetch_pieces, shards_of
from pipeline_assets.corpus.snapshot.plan import hub_inputs, log_plan, plan_snapshot
from pipeline_assets.corpus.snapshot.recipe import SnapshotRecipe
from pipeline_assets.corpus.spine.building import Building, Receipt, total_counts
from pipeline_assets.corpus.spine.engine import EngineSettings, run_stage
from pipeline_assets.corpus.spine.errors import IN_RECIPE, key
from pipeline_assets.corpus.spine.manifest import StageVersion
from pipeline_assets.corpus.spine.rejects import check_rejects
from pipeline_assets.corpus.spine.target import Content
from pipeline_assets.corpus.spine.usage import Laps

SNAPSHOT_STAGE = StageVersion("snapshot", 2)
CONVERT_STAGE = "convert"


@dataclass(frozen=True)
class SnapshotSettings:
    """Run settings of a snapshot: they change speed and storage, never content; of `record` its costs are planned."""

    engine: EngineSettings
    zstd_level: int = 3
    fetch_threads: int = 8
    record: TrackRecord = field(default_factory=TrackRecord)


def take_snapshot(building: Building, hub: HubFiles, recipe: SnapshotRecipe, settings: SnapshotSettings) -> Content:
    """Document shards and rejects in the building folder, and what the manifest says of them.

    Raises:
        InputError: from the hub; too many rejects; NUL characters in more than 1 % of the documents.
    """
    laps = Laps(lambda: hub.traffic.bytes)
    plan = plan_snapshot(hub, recipe, settings.fetch_threads, settings.engine.log_every_s)
    log_plan(plan, recipe.source)
    forecast = forecast_snapshot(plan, recipe, bytes_to_fetch(hub, recipe, plan), settings.record)
    laps.end("plan")
    pieces = fetch_pieces(hub, recipe, plan, settings.fetch_threads, settings.engine.log_every_s)
    laps.end("fetch")
    shards = shards_of(plan, pieces, recipe.shard_text_bytes)
    adopted = building.finished_shards(CONVERT_STAGE)
    converted = _convert(building, shards, recipe, settings, plan.rows)
    laps.end("convert")
    derive_id = functools.partial(derived_doc_id, recipe.dataset, recipe.config, recipe.split)
    by_name = {shard.name: receipt for shard, receipt in zip(shards, converted, strict=True)}
    published = publish(building, by_name, derive_id, settings.engine, settings.zstd_level)
    laps.end("publish")
    counts = total_counts(published)
    check_documents(counts, recipe.dataset, f"loosen {key('rules')} or {key('language', IN_RECIPE)}")
    rejects = gather_rejects(building, converted, published, settings.zstd_level)
    return Content(
        files=[*(receipt.files[0] for receipt in published), rejects],
        counts=document_counts(counts),
        decisions={
            "english_filter_applied": recipe.language is not None and plan.has_language,
            "doc_id": f"column {recipe.columns.id}" if recipe.columns.id else "sha256(dataset, config, split, text)",
            "normalisation": NORMALISATION,
            "dumps": plan.dumps(),
        },
        outside=hub_inputs(recipe, plan),
        provenance=_provenance(forecast, laps, settings, adopted),
    )


def _provenance(
    forecast: SnapshotForecast, laps: Laps, settings: SnapshotSettings, adopted_shards: int
) -> dict[str, Any]:
    """What was planned, beside what it came to."""
    left = 1 - adopted_shards / max(len(forecast.shards), 1)
    return {
        "planned": as_json(forecast.figures(settings.record, settings.engine, left)),
        "bytes_fetched": laps.counted["fetch"],
        "bytes_fetched_to_plan": laps.counted["plan"],
        "source_text_bytes": forecast.source_text_bytes,
        "adopted_shards": adopted_shards,
        "seconds_of": laps.seconds,
    }


def _convert(
    building: Building, shards: Sequence[SnapshotShard], recipe: SnapshotRecipe, settings: SnapshotSettings, rows: int
) -> list[Receipt]:
    """Receipts of converted shards; stops as soon as the rejects are too many, whatever is still to come."""
    work = functools.partial(convert_shard, recipe=recipe, zstd_level=settings.zstd_level)
    receipts: list[Receipt] = []
    rejected = 0
    for receipt in run_stage(CONVERT_STAGE, work, shards, building, settings.engine):
        receipts.append(receipt)
        rejected += sum(count for name, count in receipt.counts.items() if name.startswith("rejected/"))
        check_rejects(rejected, rows, recipe.max_reject_fraction, read_rejects(building, receipts), building.target)
    return receipts
