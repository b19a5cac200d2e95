"""The Dagster code location: every asset, check, job and resource."""

import dagster as dg

from pipeline_assets import healing, schedules
from resources.corpus_store import CorpusStore
from resources.hub import Hub

defs = dg.Definitions(
    assets=healing.ASSETS,
    asset_checks=healing.CHECKS,
    jobs=[schedules.HEALING_JOB],
    resources={"store": CorpusStore(), "hub": Hub()},
    executor=dg.in_process_executor,
)
