"""Takes a snapshot: from a recipe to the content of a sealed artifact."""

import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import msgspec

from pipeline_assets.corpus import doc_ids
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, JsonlZstWriter, read_line_blocks
from pipeline_assets.corpus.planning.outcome import as_json
from pipeline_assets.corpus.planning.snapshot_forecast import SnapshotForecast, forecast_snapshot
from pipeline_assets.corpus.planning.track_record import TrackRecord
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.snapshot.convert import REJECTS, convert_shard
from pipeline_assets.corpus.snapshot.fetch import SnapshotShard, bytes_to_fetch, fetch_pieces, shards_of
from pipeline_assets.corpus.snapshot.plan import hub_inputs, log_plan, plan_snapshot
from pipeline_assets.corpus.snapshot.recipe import SnapshotRecipe
from pipeline_assets.corpus.snapshot.unique import ConvertedShard, publish_shard
from pipeline_assets.corpus.spine.building import Building, OutputFile, Receipt, total_counts
from pipeline_assets.corpus.spine.engine import EngineSettings, run_stage
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.manifest import StageVersion
from pipeline_assets.corpus.spine.rejects import Reject, check_rejects
from pipeline_assets.corpus.spine.target import Content
from pipeline_assets.corpus.spine.usage import Laps

SNAPSHOT_STAGE = StageVersion("snapshot", 1)
CONVERT_STAGE = "convert"
REJECTS_FILE = f"rejects{SUFFIX}"
_MAX_NUL_FRACTION = Fraction(1, 100)


@dataclass(frozen=True)
class SnapshotSettings:
    """Run settings of a snapshot: they change speed and storage, never content; of `record` its costs are planned."""

    engine: EngineSettings
    zstd_level: int = 3
    fetch_threads: int = 8
    record: TrackRecord = field(default_factory=TrackRecord)


def take_snapshot(
    building: Building, hub: HubFiles, recipe: SnapshotRecipe, token_budget: int, settings: SnapshotSettings
) -> Content:
    """Document shards and rejects in the building folder, and what the manifest says of them.

    Raises:
        InputError: from the hub; too many rejects; NUL characters in more than 1 % of the documents.
    """
    laps = Laps(lambda: hub.traffic.bytes)
    plan = plan_snapshot(hub, recipe, token_budget, settings.fetch_threads, settings.engine.log_every_s)
    log_plan(plan)
    forecast = forecast_snapshot(plan, recipe, bytes_to_fetch(hub, recipe, plan), settings.record)
    laps.end("plan")
    pieces = fetch_pieces(hub, recipe, plan, settings.fetch_threads, settings.engine.log_every_s)
    laps.end("fetch")
    shards = shards_of(plan, pieces, recipe.shard_text_bytes)
    adopted = building.finished_shards(CONVERT_STAGE)
    converted = _convert(building, shards, recipe, settings, plan.rows)
    laps.end("convert")
    published = _publish(building, shards, converted, recipe, settings)
    laps.end("publish")
    counts = total_counts(published)
    _check(counts, recipe.dataset)
    rejects = _gather_rejects(building, converted, published, settings.zstd_level)
    return Content(
        files=[*(receipt.files[0] for receipt in published), rejects],
        counts=_as_manifest_counts(counts),
        decisions={
            "english_filter_applied": recipe.language is not None and plan.has_language,
            "doc_id": f"column {recipe.columns.id}" if recipe.columns.id else "sha256(dataset, config, split, text)",
            "dumps": plan.dumps(),
        },
        hub_files=hub_inputs(recipe, plan),
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
        check_rejects(rejected, rows, recipe.max_reject_fraction, _read_rejects(building, receipts), building.target)
    return receipts


def _publish(
    building: Building,
    shards: Sequence[SnapshotShard],
    converted: Sequence[Receipt],
    recipe: SnapshotRecipe,
    settings: SnapshotSettings,
) -> list[Receipt]:
    """Receipts of the final shards, every doc_id once."""
    repeats = doc_ids.repeated_ids([building.path(receipt.files[1].path) for receipt in converted])
    work = functools.partial(publish_shard, recipe=recipe, zstd_level=settings.zstd_level)
    to_publish = [
        ConvertedShard(shard.name, building.path(receipt.files[0].path), receipt, doc_ids.rows_of(repeats, number))
        for number, (shard, receipt) in enumerate(zip(shards, converted, strict=True))
    ]
    # A shard without repeats is only linked: starting workers would cost more than the work.
    engine = settings.engine if repeats else replace(settings.engine, workers=0)
    return list(run_stage("publish", work, to_publish, building, engine))


def _read_rejects(building: Building, receipts: Sequence[Receipt]) -> Iterator[Reject]:
    for receipt in receipts:
        for file in receipt.files:
            if file.path.startswith(REJECTS):
                for block in read_line_blocks(building.path(file.path)):
                    yield from (Reject(**json.loads(line)) for line in block.splitlines())


def _gather_rejects(
    building: Building, converted: Sequence[Receipt], published: Sequence[Receipt], zstd_level: int
) -> OutputFile:
    """All rejects in one file: shard by shard, rows in source order, then repeated ids."""
    with JsonlZstWriter(building.path(REJECTS_FILE), zstd_level) as writer:
        for receipts in zip(converted, published, strict=True):
            for reject in _read_rejects(building, receipts):
                writer.write_lines(msgspec.json.encode(reject.to_json()) + b"\n", 1)
    return writer.output(REJECTS_FILE)


def _check(counts: Mapping[str, int], dataset: str) -> None:
    """
    Raises:
        InputError: too many NUL characters, or nothing left.
    """
    documents, with_nul = counts.get("documents", 0), counts.get("nul_documents", 0)
    if with_nul > _MAX_NUL_FRACTION * documents:
        what = f"{with_nul:,} of {documents:,} documents hold NUL characters, more than 1 %"
        raise InputError(what, dataset, "this is not text as it was published: pin another commit or source")
    if not documents:
        raise InputError("no row passed the rules", dataset, "loosen `rules` or `language` in the recipe")


def _as_manifest_counts(counts: Mapping[str, int]) -> dict[str, Any]:
    """Counts with the ledger apart: rows in = documents out + dropped + rejected, each by reason."""
    by_reason = {name: count for name, count in counts.items() if "/" in name}
    return {
        "ledger": {
            "in": counts["rows"],
            "out": counts["documents"],
            "dropped": {name.split("/", 1)[1]: n for name, n in by_reason.items() if name.startswith("dropped/")},
            "rejected": {name.split("/", 1)[1]: n for name, n in by_reason.items() if name.startswith("rejected/")},
        },
        "documents": counts["documents"],
        "text_bytes": counts["bytes"],
        "nul_documents": counts.get("nul_documents", 0),
        "nul_characters_removed": counts.get("nul_characters_removed", 0),
    }
