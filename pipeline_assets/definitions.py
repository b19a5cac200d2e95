"""The Dagster code location: every asset, check, job and resource."""

import dagster as dg

from pipeline_assets import healing, nemotron, schedules, stage_a
from resources.corpus_store import CorpusStore
from resources.hub import Hub

defs = dg.Definitions(
    assets=[*healing.ASSETS, *stage_a.ASSETS, *nemotron.ASSETS],
    asset_checks=[*healing.CHECKS, *stage_a.CHECKS, *nemotron.CHECKS],
    jobs=[schedules.HEALING_JOB, schedules.STAGE_A_JOB, schedules.NEMOTRON_JOB],
    sensors=[schedules.stage_a_sources],
    resources={"store": CorpusStore(), "hub": Hub()},
    executor=dg.in_process_executor,
)
