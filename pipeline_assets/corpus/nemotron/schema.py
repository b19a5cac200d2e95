"""The one schema of all splits: columns are nullable, never missing; what each holds, and the files that hold them.

RowMetadata, RowQuality and RowStats say the rules of columns.
"""

from typing import Final

import pyarrow as pa

from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX
from pipeline_assets.corpus.spine.artifact import Artifact

DATA = "data"
DROPPED_FILE = f"dropped{SUFFIX}"

# Named as in RowMetadata, RowQuality and RowStats, and in their order.
_META = {
    "correctness": pa.float64(),
    "correctness_high": pa.float64(),
    "pass_k": pa.int32(),
    "correct_count": pa.int32(),
    "correctness_condition": pa.string(),
    "solved_bin": pa.string(),
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
    "duplicate_of": pa.string(),
    "similarity": pa.float64(),
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
    [(name, pa.string()) for name in ("id", "dataset", "subset", "split", "text", "text_sha1")]
    + [(name, pa.string()) for name in ("loss_mode", "loss_rule", "template")]
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


COLUMNS: Final[dict[str, str]] = {
    "id": "The row's uuid, else a hash of what was asked and said; repeats within a split end in `#2`, `#3`, …",
    "dataset": "The source dataset.",
    "subset": "Its configuration, `default` where it has but one.",
    "split": "The split of the source dataset.",
    "text": "The whole conversation as one text.",
    "text_sha1": "sha1 of the text in UTF-8, by which rows of other sets of Harmony texts are joined.",
    "loss_mode": "Which bodies of the text count as completion: `assistant_all` or `assistant_last`.",
    "loss_rule": "The same with its settings: whether reasoning and calls count.",
    "template": "How the text is written, `harmony/1` or `plain/1`; null where it is no Harmony.",
    "meta_correctness": "Share of right attempts under the best condition, 0 to 1.",
    "meta_correctness_high": "The same, over the conditions of high reasoning effort alone.",
    "meta_pass_k": "Attempts under the best condition.",
    "meta_correct_count": "How many of them were right.",
    "meta_correctness_condition": "The best condition, such as `high_with_tool`.",
    "meta_solved_bin": "From all attempts together: `unsolved`, `hard`, `medium` or `easy`.",
    "meta_difficulty_bin": "`low`, `medium` or `high`, as the source says, or names the split.",
    "meta_domain": "`math`, `proof`, `science`, `agentic` or `chat_if`.",
    "meta_tags": "What the row is and has: `source:NAME`, `tools`, `tool_calls`, `reasoning`, `multi_turn`, …, sorted.",
    "meta_eval_json": "The source's column `metadata`, as JSON.",
    "meta_expected_answer": "The answer that is held to be right.",
    "meta_capability_target": "What the row is meant to teach, as the source says.",
    "meta_reasoning": "The source's label `on` or `off`; it doesn't promise that there is reasoning.",
    "meta_license": "The row's licence, as the source says.",
    "meta_used_in": "Models that the source says it was used for.",
    "meta_task": "Of proofs: `formalisation` or `proof`.",
    "meta_lean_header": "Of proofs: what stands before the statement in Lean.",
    "meta_formal_statement": "Of proofs: the statement in Lean.",
    "meta_source_json": "The source's other columns, as JSON.",
    "quality_valid_harmony": "Whether the text is Harmony messages, one after the other, and nothing else.",
    "quality_completion_nonempty": "Whether it ends with words of the assistant that count in the loss.",
    "quality_valid_tool_schema": "Whether all calls fit the tools that the row declares; null where it can't be told.",
    "quality_is_duplicate": "Whether a row that stays asks nearly the same; null where nobody looked.",
    "quality_duplicate_of": "That row: its dataset, split and id.",
    "quality_similarity": "Jaccard similarity of what both ask.",
    "quality_length": "`short` (below 128 tokens), `long` (above 16,384) or `normal`.",
    "quality_repetition": "Share of its runs of 16 tokens that occurred in it before, 0 to 1.",
    "quality_empty_messages": "Messages before the last one that hold nothing but blanks.",
    "stats_char_len": "Characters (code points) of the text.",
    "stats_approx_tokens": "The same as `stats_tokens`.",
    "stats_tokens": "o200k Harmony tokens of the text, control tokens included.",
    "stats_completion_tokens": "Tokens of the bodies that count as completion.",
    "stats_turns": "Messages of the user.",
    "stats_tool_calls": "Calls by the assistant.",
    "source_file": "The file of the source dataset that the row is in.",
    "source_row": "Where in that file: of JSON lines the bytes before its line, uncompressed; of Parquet its number.",
    "source_revision": "The commit of the source dataset.",
    "source_tools_id": "Which tools the row declares: a key of `<split>__tools_catalog.json`.",
    "source_tools_count": "How many these are.",
}


def data_files(shards: Artifact) -> list[str]:
    """The names of the files that hold the rows of a split, in order."""
    return [file.path for file in shards.manifest.identity.files if file.path.startswith(f"{DATA}/")]
