"""Jobs, and the sensor that makes partitions of a recipe's sources."""

import dagster as dg

from pipeline_assets import healing, stage_a
from pipeline_assets.corpus.recipes.stage_a import StageARecipe
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.partitions import STAGE_A_SOURCES
from resources.corpus_store import CorpusStore

HEALING_JOB = dg.define_asset_job(
    "healing",
    selection=dg.AssetSelection.assets(*healing.ASSETS),
    description="FineWeb-Edu at a commit → Document shards → Megatron splits, by partition: train, valid",
)
STAGE_A_JOB = dg.define_asset_job(
    "stage_a",
    selection=dg.AssetSelection.assets(*stage_a.ASSETS),
    partitions_def=STAGE_A_SOURCES,
    description="Sources → Documents → filtered, a partition for each source; the report when the last one is there",
)


@dg.sensor(
    minimum_interval_seconds=30,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Makes a partition of each source of the chosen stage A recipe",
)
def stage_a_sources(context: dg.SensorEvaluationContext, store: CorpusStore) -> dg.SensorResult | dg.SkipReason:
    """New sources become partitions; those of other recipes stay."""
    try:
        names = [source.source for source in store.recipe(StageARecipe).sources]
    except InputError as error:
        return dg.SkipReason(str(error))
    known = set(context.instance.get_dynamic_partitions(str(STAGE_A_SOURCES.name)))
    added = [name for name in names if name not in known]
    if not added:
        return dg.SkipReason("every source has its partition")
    return dg.SensorResult(dynamic_partitions_requests=[STAGE_A_SOURCES.build_add_request(added)])
