"""The plan of a healing recipe: its snapshot from listing and footers, its splits from what that holds or will hold."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipeline_assets.corpus.document_shards import SHARDS
from pipeline_assets.corpus.megatron_split import encode_stage
from pipeline_assets.corpus.planning.estimate import Estimate, exactly, total
from pipeline_assets.corpus.planning.recipe_plan import Budget, Dump, PlanSettings, RecipePlan, Sample, TargetPlan
from pipeline_assets.corpus.planning.snapshot_forecast import forecast_snapshot
from pipeline_assets.corpus.planning.split_forecast import (
    CorpusFigures,
    SplitForecast,
    bytes_per_token,
    corpus_figures,
    forecast_split,
)
from pipeline_assets.corpus.planning.track_record import TrackRecord
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.sampling.row_groups import Amount
from pipeline_assets.corpus.sampling.split import SPLITS
from pipeline_assets.corpus.snapshot.plan import SnapshotPlan, bytes_to_fetch, plan_snapshot
from pipeline_assets.corpus.snapshot.take import CONVERT_STAGE
from pipeline_assets.corpus.spine.inventory import Holding
from pipeline_assets.corpus.text_selection import chosen_paths
from pipeline_assets.systems.healing import HealingRecipe


@dataclass(frozen=True)
class _Source:
    """What splits are made from.

    Attributes:
        plan, figures: of the snapshot; None and empty where it is taken already.
        digest: of the snapshot; None where it isn't taken yet.
        corpus, stored: what the selected shards hold, and their bytes on disk.
    """

    plan: SnapshotPlan | None
    figures: Mapping[str, Estimate]
    digest: str | None
    corpus: CorpusFigures
    stored: Estimate


def plan_healing(recipe: HealingRecipe, held: Sequence[Holding], hub: HubFiles, settings: PlanSettings) -> RecipePlan:
    """
    Args:
        held: the state of the recipe's artifacts, as `holdings` tells it; what is current costs nothing.
    Raises:
        InputError: from the hub, which is asked only where the snapshot is to be taken.
        UsageError: no file, shard or column as the recipe names it.
    """
    before = hub.traffic.bytes
    by_role = {holding.target.role: holding for holding in held}
    snapshot = by_role[recipe.fineweb_edu_snapshot().role]
    is_taken = snapshot.is_there
    source = _sealed_source(recipe, snapshot) if is_taken else _planned_source(recipe, snapshot, hub, settings)
    record = settings.record()
    ratio = bytes_per_token(record, recipe.snapshot.content(), recipe.megatron, source.digest)
    figures = {
        snapshot.target.role: source.figures,
        recipe.healing_text_manifest().role: _selection_figures(source, record),
    }
    budgets = []
    for split in SPLITS:
        holding = by_role[recipe.megatron_split(split).role]
        forecast = forecast_split(split, source.corpus, recipe.megatron, ratio)
        left = _share_left(holding, encode_stage("gigatoken"), source.corpus.shards)
        figures[holding.target.role] = forecast.figures(record.rates(), settings.engine, left)
        if not holding.is_there:
            budgets.append(_budget(forecast, source.plan, recipe.snapshot.amount))
    plans = [
        TargetPlan(holding, {} if holding.is_there else figures.get(role, {})) for role, holding in by_role.items()
    ]
    sample = None if source.plan is None else _sample(source.plan)
    return RecipePlan(plans, sample, budgets, hub.traffic.bytes - before)


def _sealed_source(recipe: HealingRecipe, snapshot: Holding) -> _Source:
    manifest = snapshot.manifest
    assert manifest is not None  # it is current
    shards = {file.path: file for file in manifest.identity.files if file.path.startswith(f"{SHARDS}/")}
    chosen = chosen_paths(list(shards), recipe.selection, manifest.name)
    stored = sum(file.bytes for file in manifest.storage if file.path in set(chosen))
    corpus = corpus_figures(manifest, [shards[path] for path in chosen])
    return _Source(None, {}, manifest.digest, corpus, exactly(stored, "the sealed snapshot"))


def _planned_source(recipe: HealingRecipe, snapshot: Holding, hub: HubFiles, settings: PlanSettings) -> _Source:
    plan = plan_snapshot(hub, recipe.snapshot, settings.fetch_threads, settings.engine.log_every_s)
    missing, record = bytes_to_fetch(hub, recipe.snapshot, plan), settings.record()
    forecast = forecast_snapshot(plan, recipe.snapshot, missing, record)
    left = _share_left(snapshot, CONVERT_STAGE, len(forecast.shards))
    paths = set(chosen_paths([shard.path for shard in forecast.shards], recipe.selection, recipe.snapshot.name))
    chosen = [shard for shard in forecast.shards if shard.path in paths]
    corpus = CorpusFigures(
        total((shard.documents for shard in chosen), forecast.documents.basis),
        total((shard.text_bytes for shard in chosen), forecast.text_bytes.basis),
        len(chosen),
    )
    stored = total((shard.stored_bytes for shard in chosen), forecast.stored_bytes.basis)
    return _Source(plan, forecast.figures(record, settings.engine, left), None, corpus, stored)


def _share_left(holding: Holding, stage: str, shards: int) -> float:
    """Of the shards of a stage, those that no build has finished yet."""
    unfinished = holding.unfinished
    if unfinished is None or not unfinished.is_as_asked or not shards:
        return 1.0
    return max(0.0, 1 - unfinished.finished_shards.get(stage, 0) / shards)


def _selection_figures(source: _Source, record: TrackRecord) -> dict[str, Estimate]:
    """Its shards are hashed again, and named."""
    seconds = source.stored.likely / record.rates().write
    return {"documents": source.corpus.documents.counted(), "build_seconds": record.rates().seconds(seconds)}


def _budget(forecast: SplitForecast, plan: SnapshotPlan | None, amount: Amount) -> Budget:
    is_all = plan is not None and plan.is_everything
    taken = amount.limit[1] if plan is None else plan.amount_of(amount.limit[0])
    available = forecast.available.counted()
    return Budget(forecast.split, forecast.budget, available, forecast.outlook, is_all, amount.limit, taken)


def _sample(plan: SnapshotPlan) -> Sample:
    return Sample(
        files=plan.files,
        files_listed=len(plan.listing),
        row_groups=len(plan.pieces),
        row_groups_seen=sum(tail.row_groups for tail in plan.tails.values()),
        rows=plan.rows,
        dumps=[Dump(name, share["row_groups"], share["rows"]) for name, share in plan.dumps().items()],
    )
