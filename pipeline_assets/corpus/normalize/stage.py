"""Stage `normalize`, which converts the rows of a source of stage A to Documents."""

from collections.abc import Sequence
from typing import TypeVar

from pipeline_assets.spine.engine import RunSettings, run_stage
from pipeline_assets.spine.manifest import StageVersion
from pipeline_assets.spine.stage import Shard, Work
from pipeline_assets.spine.staging import Receipt, StagingDir

NORMALIZE_STAGE = StageVersion("normalize", 3)
ShardT = TypeVar("ShardT", bound=Shard)


def convert_shards(
    staging: StagingDir, work: Work[ShardT], shards: Sequence[ShardT], settings: RunSettings
) -> dict[str, Receipt]:
    """Convert the shards of a source; return receipts by name, in shard order."""
    receipts = run_stage(NORMALIZE_STAGE.name, work, shards, staging, settings)
    return {shard.name: receipt for shard, receipt in zip(shards, receipts, strict=True)}
