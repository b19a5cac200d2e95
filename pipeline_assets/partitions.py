"""Every partitions definition. Coarse on purpose: shards live inside an asset, never as partitions."""

import dagster as dg

MEGATRON_SPLITS = dg.StaticPartitionsDefinition(["train", "valid"])
STAGE_A_SOURCES = dg.DynamicPartitionsDefinition(name="stage_a_source")
STAGE_A_EVALUATION_SETS = dg.DynamicPartitionsDefinition(name="stage_a_evaluation_set")
