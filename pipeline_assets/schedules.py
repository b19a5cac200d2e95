"""Jobs."""

import dagster as dg

from pipeline_assets import healing

HEALING_JOB = dg.define_asset_job(
    "healing",
    selection=dg.AssetSelection.assets(*healing.ASSETS),
    description="FineWeb-Edu at a commit → Document shards → Megatron splits, by partition: train, valid",
)
