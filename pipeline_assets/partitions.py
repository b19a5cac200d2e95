"""Every partitions definition. Coarse on purpose: shards live inside an asset, never as partitions."""

import dagster as dg

MEGATRON_SPLITS = dg.StaticPartitionsDefinition(["train", "valid"])
NEMOTRON_SPLITS = dg.StaticPartitionsDefinition(
    [
        "nemotron-math-v2/high_part00",
        "nemotron-math-v2/high_part01",
        "nemotron-math-v2/high_part02",
        "nemotron-math-v2/medium",
        "nemotron-math-v2/low",
        "nemotron-math-proofs-v1/lean",
        "nemotron-science-v1/MCQ",
        "nemotron-science-v1/RQA",
        "nemotron-agentic-v1/interactive_agent",
        "nemotron-agentic-v1/tool_calling",
        "nemotron-instruction-following-chat-v1/chat_if",
        "nemotron-instruction-following-chat-v1/structured_outputs",
    ]
)
NEMOTRON_DATASETS = dg.StaticPartitionsDefinition(
    [
        "nemotron-math-v2",
        "nemotron-math-proofs-v1",
        "nemotron-science-v1",
        "nemotron-agentic-v1",
        "nemotron-instruction-following-chat-v1",
    ]
)
STAGE_A_SOURCES = dg.DynamicPartitionsDefinition(name="stage_a_source")
STAGE_A_EVALUATION_SETS = dg.DynamicPartitionsDefinition(name="stage_a_evaluation_set")
