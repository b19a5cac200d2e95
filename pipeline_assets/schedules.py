"""Jobs, and the sensor that makes partitions of a recipe's sources and evaluation sets."""

import dagster as dg

from pipeline_assets import healing, nemotron, stage_a
from pipeline_assets.corpus.recipes.stage_a import StageARecipe
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.partitions import NEMOTRON_SPLITS, STAGE_A_EVALUATION_SETS, STAGE_A_SOURCES
from resources.corpus_store import CorpusStore

HEALING_JOB = dg.define_asset_job(
    "healing",
    selection=dg.AssetSelection.assets(*healing.ASSETS),
    description="FineWeb-Edu at a commit → Document shards → Megatron splits, by partition: train, valid",
)
STAGE_A_JOB = dg.define_asset_job(
    "stage_a",
    selection=dg.AssetSelection.assets(*stage_a.ASSETS) - dg.AssetSelection.assets(stage_a.evaluation),
    partitions_def=STAGE_A_SOURCES,
    description="Sources → Documents → filtered, a partition for each source; what is made of all when the last one is "
    "there, and every evaluation set, which have partitions of their own",
)
NEMOTRON_JOB = dg.define_asset_job(
    "nemotron",
    selection=dg.AssetSelection.assets(*nemotron.ASSETS) - dg.AssetSelection.assets(nemotron.hf_layout),
    partitions_def=NEMOTRON_SPLITS,
    description="Splits of the Nemotron datasets → their files → what their rows are, and their texts, a partition for "
    "each split; the coverage of all when the last one is there. Folders for a hub have partitions of their own",
)


@dg.sensor(
    minimum_interval_seconds=30,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Makes a partition of each source and each evaluation set of the chosen stage A recipe",
)
def stage_a_sources(context: dg.SensorEvaluationContext, store: CorpusStore) -> dg.SensorResult | dg.SkipReason:
    """New sources and evaluation sets become partitions; those of other recipes stay."""
    try:
        recipe = store.recipe(StageARecipe)
    except InputError as error:
        return dg.SkipReason(str(error))
    named = {
        STAGE_A_SOURCES: [source.source for source in recipe.sources],
        STAGE_A_EVALUATION_SETS: [str(target.partition) for target in recipe.evaluation()],
    }
    requests = []
    for partitions, names in named.items():
        known = set(context.instance.get_dynamic_partitions(str(partitions.name)))
        added = [name for name in names if name not in known]
        requests += [partitions.build_add_request(added)] if added else []
    if not requests:
        return dg.SkipReason("every source has its partition")
    return dg.SensorResult(dynamic_partitions_requests=requests)
