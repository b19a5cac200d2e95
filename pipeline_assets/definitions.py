"""The Dagster code location: every asset, check, job and resource."""

import dagster as dg

from pipeline_assets import healing, schedules, stage_a
from resources.corpus_store import CorpusStore
from resources.hub import Hub

defs = dg.Definitions(
    assets=[*healing.ASSETS, *stage_a.ASSETS],
    asset_checks=[*healing.CHECKS, *stage_a.CHECKS],
    jobs=[schedules.HEALING_JOB, schedules.STAGE_A_JOB],
    sensors=[schedules.stage_a_sources],
    resources={"store": CorpusStore(), "hub": Hub()},
    executor=dg.in_process_executor,
)
