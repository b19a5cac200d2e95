"""The one schema of all splits: columns are nullable, never missing."""

import pyarrow as pa

# Named as in RowMetadata, RowQuality and RowStats, and in their order.
_META = {
    "correctness": pa.float64(),
    "correctness_high": pa.float64(),
    "pass_k": pa.int32(),
    "correct_count": pa.int32(),
    "correctness_condition": pa.string(),
    "difficulty_bin": pa.string(),
    "domain": pa.string(),
    "tags": pa.list_(pa.string()),
    "eval_json": pa.string(),
    "expected_answer": pa.string(),
    "capability_target": pa.string(),
    "reasoning": pa.string(),
    "license": pa.string(),
    "used_in": pa.list_(pa.string()),
    "task": pa.string(),
    "lean_header": pa.string(),
    "formal_statement": pa.string(),
    "source_json": pa.string(),
}
_QUALITY = {
    "valid_harmony": pa.bool_(),
    "completion_nonempty": pa.bool_(),
    "valid_tool_schema": pa.bool_(),
    "is_duplicate": pa.bool_(),
    "length": pa.string(),
    "repetition": pa.float64(),
    "empty_messages": pa.int32(),
}
_STATS = {
    "char_len": pa.int64(),
    "approx_tokens": pa.int64(),
    "tokens": pa.int64(),
    "completion_tokens": pa.int64(),
    "turns": pa.int32(),
    "tool_calls": pa.int32(),
}

SCHEMA = pa.schema(
    [(name, pa.string()) for name in ("id", "dataset", "subset", "split", "text", "loss_mode", "template")]
    + [(f"meta_{name}", dtype) for name, dtype in _META.items()]
    + [(f"quality_{name}", dtype) for name, dtype in _QUALITY.items()]
    + [(f"stats_{name}", dtype) for name, dtype in _STATS.items()]
    + [
        ("source_file", pa.string()),
        ("source_row", pa.int64()),
        ("source_revision", pa.string()),
        ("source_tools_id", pa.string()),
        ("source_tools_count", pa.int32()),
    ]
)
