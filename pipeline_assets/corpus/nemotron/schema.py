"""Schema of normalized rows with a description of each column."""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX
from pipeline_assets.spine.artifact import Artifact

DATA_FOLDER = "data"
DROPPED_FILE = f"dropped{SUFFIX}"

_TEXT, _TEXTS, _BOOL = pa.string(), pa.list_(pa.string()), pa.bool_()
_FLOAT, _INT32, _INT64 = pa.float64(), pa.int32(), pa.int64()
_COLUMNS: dict[str, tuple[pa.DataType, str]] = {
    "id": (_TEXT, "The row's uuid, else a hash of its content; repeats within a split end in `#2`, `#3`, …"),
    "dataset": (_TEXT, "Source dataset."),
    "subset": (_TEXT, "Configuration of the dataset, `default` if it has only one."),
    "split": (_TEXT, "Split of the source dataset."),
    "text": (_TEXT, "The whole conversation as one text."),
    "text_sha1": (_TEXT, "sha1 of the text in UTF-8, to join rows with other sets of Harmony texts."),
    "loss_mode": (_TEXT, "Bodies that count: `assistant_all`, `assistant_last`, `assistant_turns` or `marked_spans`."),
    "loss_rule": (_TEXT, "Loss mode with its settings: whether reasoning and calls count, or which messages."),
    "template": (_TEXT, "Format of the text: `harmony/1`, `plain/1` or `chat/…`, a model's template; null if none."),
    "meta_correctness": (_FLOAT, "Share of right attempts under the best condition, 0 to 1."),
    "meta_correctness_high": (_FLOAT, "Share of right attempts under the best condition of high reasoning effort."),
    "meta_pass_k": (_INT32, "Attempts under the best condition."),
    "meta_correct_count": (_INT32, "Right attempts under the best condition."),
    "meta_correctness_condition": (_TEXT, "The best condition, such as `high_with_tool`."),
    "meta_solved_bin": (_TEXT, "Difficulty from all attempts together: `unsolved`, `hard`, `medium` or `easy`."),
    "meta_difficulty_bin": (_TEXT, "`low`, `medium` or `high`, according to the source or the name of the split."),
    "meta_domain": (_TEXT, "`math`, `proof`, `science`, `agentic`, `chat_if`, `code` or `safety`."),
    "meta_tags": (
        _TEXTS,
        "Sorted features of the row: `source:NAME`, `tools`, `tool_calls`, `reasoning`, `multi_turn`, …",
    ),
    "meta_eval_json": (_TEXT, "Column `metadata` of the source, as JSON."),
    "meta_expected_answer": (_TEXT, "Expected answer."),
    "meta_capability_target": (_TEXT, "Capability that the row should teach, according to the source."),
    "meta_reasoning": (_TEXT, "Label `on` or `off` of the source; it does not guarantee that the row has reasoning."),
    "meta_license": (_TEXT, "Licence of the row, according to the source."),
    "meta_used_in": (_TEXTS, "Models that the row was used for, according to the source."),
    "meta_task": (_TEXT, "Task of a proof: `formalisation` or `proof`."),
    "meta_lean_header": (_TEXT, "Lean header of a proof, before the statement."),
    "meta_formal_statement": (_TEXT, "Statement of a proof in Lean."),
    "meta_source_json": (_TEXT, "Other columns of the source, as JSON."),
    "quality_valid_harmony": (_BOOL, "Whether the text is Harmony messages and nothing else; null for `chat/…`."),
    "quality_completion_nonempty": (
        _BOOL,
        "Whether the text ends with non-blank assistant text that counts in the loss.",
    ),
    "quality_valid_tool_schema": (_BOOL, "Whether all calls fit the tools that the row declares; null if unknown."),
    "quality_is_duplicate": (_BOOL, "Whether a kept row has nearly the same prompt; false before deduplication."),
    "quality_duplicate_of": (_TEXT, "Dataset, split and id of that kept row."),
    "quality_similarity": (_FLOAT, "Jaccard similarity of both prompts."),
    "quality_length": (_TEXT, "`short` (below 128 tokens), `long` (above 16,384) or `normal`."),
    "quality_repetition": (_FLOAT, "Share of runs of 16 tokens that occurred earlier in the text, 0 to 1."),
    "quality_empty_messages": (_INT32, "Blank messages before the last one."),
    "quality_known_channels": (
        _BOOL,
        "Whether all channels are Harmony's (`analysis`, `commentary`, `final`); null if the text is not Harmony.",
    ),
    "quality_control_characters": (
        _INT32,
        "Control characters except tab and line ends, also as JSON escapes: U+0008 may have been `\\b` of LaTeX.",
    ),
    "quality_stalled_calls": (_INT32, "Calls that repeat an equal call after two equal replies."),
    "stats_char_len": (_INT64, "Characters (code points) of the text."),
    "stats_approx_tokens": (_INT64, "Equal to `stats_tokens`."),
    "stats_tokens": (_INT64, "Tokens of the text, control tokens included: o200k Harmony, or the model of `chat/…`."),
    "stats_completion_tokens": (_INT64, "Tokens of the bodies that count as completion."),
    "stats_turns": (_INT32, "Messages of the user."),
    "stats_tool_calls": (_INT32, "Calls by the assistant."),
    "source_file": (_TEXT, "File of the source dataset that contains the row."),
    "source_row": (
        _INT64,
        "Position in that file: uncompressed bytes before the line in JSON lines, row number in Parquet.",
    ),
    "source_revision": (_TEXT, "Commit of the source dataset."),
    "source_tools_id": (_TEXT, "Tools that the row declares: a key of `<split>__tools_catalog.json`."),
    "source_tools_count": (_INT32, "Number of declared tools."),
}
SCHEMA = pa.schema([(name, kind) for name, (kind, _) in _COLUMNS.items()])
COLUMN_DESCRIPTIONS: Final = {name: description for name, (_, description) in _COLUMNS.items()}


def has_row_columns(names: Sequence[str]) -> bool:
    """Check whether a table's first columns are those of normalized rows."""
    return list(names[: len(_COLUMNS)]) == list(_COLUMNS)


def select_columns(table: pa.Table) -> pa.Table:
    """Select the columns of the schema; a column that the table lacks becomes null."""
    known = set(table.column_names)
    columns = [table[field.name] if field.name in known else pa.nulls(table.num_rows, field.type) for field in SCHEMA]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def data_files(rows: Artifact) -> list[str]:
    """List the paths of a split's Parquet files of rows, in order."""
    return [file.path for file in rows.manifest.identity.files if file.path.startswith(f"{DATA_FOLDER}/")]
