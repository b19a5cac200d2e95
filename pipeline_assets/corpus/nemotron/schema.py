"""The one schema of all splits: columns are nullable, never missing; what each holds, and the files that hold them. And
conditions over these columns, in SQL, which say which rows are candidates for what.
"""

from collections.abc import Iterable
from typing import Final

import pyarrow as pa

from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX
from pipeline_assets.spine.artifact import Artifact

DATA = "data"
DROPPED_FILE = f"dropped{SUFFIX}"

_TEXT, _TEXTS, _TRUTH = pa.string(), pa.list_(pa.string()), pa.bool_()
_FLOAT, _SMALL, _WHOLE = pa.float64(), pa.int32(), pa.int64()
_COLUMNS: dict[str, tuple[pa.DataType, str]] = {
    "id": (
        _TEXT,
        "The row's uuid, else a hash of what was asked and said; repeats within a split end in `#2`, `#3`, …",
    ),
    "dataset": (_TEXT, "The source dataset."),
    "subset": (_TEXT, "Its configuration, `default` where it has but one."),
    "split": (_TEXT, "The split of the source dataset."),
    "text": (_TEXT, "The whole conversation as one text."),
    "text_sha1": (_TEXT, "sha1 of the text in UTF-8, by which rows of other sets of Harmony texts are joined."),
    "loss_mode": (_TEXT, "Which bodies of the text count as completion: `assistant_all` or `assistant_last`."),
    "loss_rule": (_TEXT, "The same with its settings: whether reasoning and calls count."),
    "template": (_TEXT, "How the text is written, `harmony/1` or `plain/1`; null where it is no Harmony."),
    "meta_correctness": (_FLOAT, "Share of right attempts under the best condition, 0 to 1."),
    "meta_correctness_high": (_FLOAT, "The same, over the conditions of high reasoning effort alone."),
    "meta_pass_k": (_SMALL, "Attempts under the best condition."),
    "meta_correct_count": (_SMALL, "How many of them were right."),
    "meta_correctness_condition": (_TEXT, "The best condition, such as `high_with_tool`."),
    "meta_solved_bin": (_TEXT, "From all attempts together: `unsolved`, `hard`, `medium` or `easy`."),
    "meta_difficulty_bin": (_TEXT, "`low`, `medium` or `high`, as the source says, or names the split."),
    "meta_domain": (_TEXT, "`math`, `proof`, `science`, `agentic` or `chat_if`."),
    "meta_tags": (
        _TEXTS,
        "What the row is and has: `source:NAME`, `tools`, `tool_calls`, `reasoning`, `multi_turn`, …, sorted.",
    ),
    "meta_eval_json": (_TEXT, "The source's column `metadata`, as JSON."),
    "meta_expected_answer": (_TEXT, "The answer that is held to be right."),
    "meta_capability_target": (_TEXT, "What the row is meant to teach, as the source says."),
    "meta_reasoning": (_TEXT, "The source's label `on` or `off`; it doesn't promise that there is reasoning."),
    "meta_license": (_TEXT, "The row's licence, as the source says."),
    "meta_used_in": (_TEXTS, "Models that the source says it was used for."),
    "meta_task": (_TEXT, "Of proofs: `formalisation` or `proof`."),
    "meta_lean_header": (_TEXT, "Of proofs: what stands before the statement in Lean."),
    "meta_formal_statement": (_TEXT, "Of proofs: the statement in Lean."),
    "meta_source_json": (_TEXT, "The source's other columns, as JSON."),
    "quality_valid_harmony": (_TRUTH, "Whether the text is Harmony messages, one after the other, and nothing else."),
    "quality_completion_nonempty": (_TRUTH, "Whether it ends with words of the assistant that count in the loss."),
    "quality_valid_tool_schema": (
        _TRUTH,
        "Whether all calls fit the tools that the row declares; null where it can't be told.",
    ),
    "quality_is_duplicate": (_TRUTH, "Whether a kept row asks nearly the same; false before deduplication."),
    "quality_duplicate_of": (_TEXT, "That row: its dataset, split and id."),
    "quality_similarity": (_FLOAT, "Jaccard similarity of what both ask."),
    "quality_length": (_TEXT, "`short` (below 128 tokens), `long` (above 16,384) or `normal`."),
    "quality_repetition": (_FLOAT, "Share of its runs of 16 tokens that occurred in it before, 0 to 1."),
    "quality_empty_messages": (_SMALL, "Messages before the last one that hold nothing but blanks."),
    "quality_known_channels": (
        _TRUTH,
        "Whether all channels are Harmony's: `analysis`, `commentary`, `final`; null where the text is no Harmony.",
    ),
    "quality_control_characters": (
        _SMALL,
        "Control characters but tab and line ends, also as escapes of JSON: U+0008 may have been `\\b` of LaTeX.",
    ),
    "quality_stalled_calls": (_SMALL, "Calls that repeat an equal one after two equal replies."),
    "stats_char_len": (_WHOLE, "Characters (code points) of the text."),
    "stats_approx_tokens": (_WHOLE, "The same as `stats_tokens`."),
    "stats_tokens": (_WHOLE, "o200k Harmony tokens of the text, control tokens included."),
    "stats_completion_tokens": (_WHOLE, "Tokens of the bodies that count as completion."),
    "stats_turns": (_SMALL, "Messages of the user."),
    "stats_tool_calls": (_SMALL, "Calls by the assistant."),
    "source_file": (_TEXT, "The file of the source dataset that the row is in."),
    "source_row": (
        _WHOLE,
        "Where in that file: of JSON lines the bytes before its line, uncompressed; of Parquet its number.",
    ),
    "source_revision": (_TEXT, "The commit of the source dataset."),
    "source_tools_id": (_TEXT, "Which tools the row declares: a key of `<split>__tools_catalog.json`."),
    "source_tools_count": (_SMALL, "How many these are."),
}
SCHEMA = pa.schema([(name, kind) for name, (kind, _) in _COLUMNS.items()])
COLUMNS: Final = {name: said for name, (_, said) in _COLUMNS.items()}


def select_columns(table: pa.Table, names: Iterable[str] = SCHEMA.names) -> pa.Table:
    """Select columns of the schema; one that rows of an earlier version lack is null."""
    schema = pa.schema([SCHEMA.field(name) for name in names])
    known = set(table.column_names)
    columns = [table[field.name] if field.name in known else pa.nulls(table.num_rows, field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def data_files(shards: Artifact) -> list[str]:
    """The names of the files that hold the rows of a split, in order."""
    return [file.path for file in shards.manifest.identity.files if file.path.startswith(f"{DATA}/")]
