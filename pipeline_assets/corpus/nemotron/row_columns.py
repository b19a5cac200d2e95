"""Columns of a row: id, metadata, quality and statistics.

`schema.COLUMN_DESCRIPTIONS` describes each column. The id is the row's uuid, or else a hash of its content. Repeated
ids are numbered over a whole split, so ids do not depend on the shards (`doc_ids`).

The evaluations in `metadata` of Math-v2 record how often a problem was solved. Each of six conditions,
`reason_{high,medium,low}_{with,no}_tool`, has `{count, pass, accuracy}`: of `count` attempts, `pass` were correct.
"""

import hashlib
import math
import re
from collections.abc import Collection, Mapping
from typing import Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.chat_templates.marked_text import uses_chat_template
from pipeline_assets.corpus.harmony.encode import HarmonyTokens, LossMode, loss_message_indexes
from pipeline_assets.corpus.harmony.message import JsonValue, Role
from pipeline_assets.corpus.harmony.parse import ParsedText
from pipeline_assets.corpus.nemotron.conversation import RowConversation
from pipeline_assets.corpus.nemotron.dataset_section import Domain
from pipeline_assets.corpus.nemotron.proofs import proof_task
from pipeline_assets.corpus.nemotron.row_forms import read_object
from pipeline_assets.corpus.nemotron.row_values import Row, canonical_json, has_value, to_text
from pipeline_assets.corpus.nemotron.rows_recipe import RowsRecipe
from pipeline_assets.corpus.nemotron.text_flags import count_control_characters, has_known_channels
from pipeline_assets.corpus.nemotron.tools import DeclaredTools, calls_fit_tools, has_tools

# Evaluations, licences and links are excluded: a later revision that changes only them has the same rows.
_IDENTITY_COLUMNS = ("problem", "expected_answer", "formal_statement", "lean_header", "messages", "text")
_NUMBERED_ID = re.compile(r".*#\d+", re.DOTALL)


def row_id(row: Row, dataset: str, split: str) -> str:
    """Return the uuid of a row, or else the hex sha256 of its content.

    The hash covers dataset, split, uuid and the source columns in `_IDENTITY_COLUMNS`, as canonical JSON. A uuid that
    ends in `#` and digits is also replaced by a hash, because it could equal a numbered repeat. Missing values
    (`has_value`) do not change the hash, so JSON lines and Parquet give the same id.
    """
    uuid = to_text(row.get("uuid"))
    if uuid is not None and is_row_id(uuid):
        return uuid
    columns = _normalise_identity({column: row.get(column) for column in _IDENTITY_COLUMNS})
    identity = {"dataset": dataset, "split": split, "uuid": uuid, "columns": columns}
    return hashlib.sha256(msgspec.json.encode(identity, order="sorted")).hexdigest()


def is_row_id(uuid: str) -> bool:
    """Check whether a uuid can be a row's id: it must not end in `#` and digits."""
    return _NUMBERED_ID.fullmatch(uuid) is None


def _normalise_identity(value: JsonValue) -> JsonValue:
    """Remove missing values; convert floats, which have several JSON forms, to text."""
    if isinstance(value, dict):  # most values are text, so skip a call for them
        return {
            key: item if isinstance(item, str) else _normalise_identity(item)
            for key, item in value.items()
            if has_value(item)
        }
    if isinstance(value, list):
        return [_normalise_identity(item) for item in value]
    return repr(value) if isinstance(value, float) else value


# Among conditions with equal correctness, the first in this order is the best.
EVALUATION_CONDITIONS = tuple(
    f"{effort}_{tool}" for effort in ("high", "medium", "low") for tool in ("with_tool", "no_tool")
)


class _Evaluation(NamedTuple):
    accuracy: float
    attempts: int | None
    passed: int | None


def read_correctness(evaluations: Mapping[str, JsonValue]) -> dict[str, object]:
    """Return the correctness columns of a row, all null if no condition is valid.

    A condition is a reasoning effort, with or without a tool: see `EVALUATION_CONDITIONS`. The columns describe the
    condition with the highest accuracy, except two: `meta_correctness_high` is the accuracy of the best `high_…`
    condition, and `meta_solved_bin` describes all attempts.

    A condition is valid if `count` is above 0 and `pass` is from 0 to `count`. If one of them is
    missing or no integer, the condition is valid if `accuracy` is from 0 to 1, unless `count` is 0; then `meta_pass_k`
    and `meta_correct_count` are null. Numbers may be text. Shares are rounded to four digits.
    """
    valid = {}
    for condition in EVALUATION_CONDITIONS:
        evaluation = evaluations.get(f"reason_{condition}")
        if isinstance(evaluation, dict) and (attempts := _read_evaluation(evaluation)) is not None:
            valid[condition] = attempts
    best = max(valid, key=lambda condition: valid[condition].accuracy, default=None)  # the first of equals
    accuracy, count, passed = (None, None, None) if best is None else valid[best]
    high = [attempts.accuracy for condition, attempts in valid.items() if condition.startswith("high_")]
    return {
        "meta_correctness": accuracy,
        "meta_correctness_high": max(high, default=None),
        "meta_pass_k": count,
        "meta_correct_count": passed,
        "meta_correctness_condition": best,
        "meta_solved_bin": _solved_bin(valid.values()),
    }


def _solved_bin(evaluations: Collection[_Evaluation]) -> str | None:
    """Return the bin for the share of correct attempts; None without attempts."""
    count = sum(evaluation.attempts or 0 for evaluation in evaluations)
    passed = sum(evaluation.passed or 0 for evaluation in evaluations)
    if not count:
        return None
    if not passed:
        return "unsolved"
    if 4 * passed <= count:
        return "hard"
    return "medium" if 4 * passed <= 3 * count else "easy"


def _read_evaluation(evaluation: Mapping[str, JsonValue]) -> _Evaluation | None:
    count, passed = _to_int(evaluation.get("count")), _to_int(evaluation.get("pass"))
    if count is not None and passed is not None:
        return _Evaluation(round(passed / count, 4), count, passed) if 0 <= passed <= count and count else None
    accuracy = _to_float(evaluation.get("accuracy"))
    if count == 0 or accuracy is None or not 0 <= accuracy <= 1:
        return None
    return _Evaluation(round(accuracy, 4), None, None)


def _to_int(value: JsonValue) -> int | None:
    if type(value) is int and 0 <= value < 2**31:  # nearly all values
        return value
    number = _to_float(value)
    return int(number) if number is not None and number == int(number) and abs(number) < 2**31 else None


def _to_float(value: JsonValue) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


# Source columns that have their own column or are part of the text; `source_tools_id` stands for the tools.
_STORED_COLUMNS = frozenset(
    {"uuid", "messages", "text", "tools", "metadata", "expected_answer", "capability_target", "reasoning", "license"}
    | {"used_in", "lean_header", "formal_statement", "tags"}
)


def row_metadata(
    row: Row, conversation: RowConversation, domain: Domain, split: str, rules: RowsRecipe
) -> dict[str, object]:
    """Return the columns `meta_…` of a row; a missing value is null.

    A source value of an unexpected type is stored as canonical JSON. `meta_eval_json` is the source column `metadata`
    as canonical JSON. Source columns without an output column are stored together in `meta_source_json`, without the
    user names and URLs that the rules omit.
    """
    copied = ("expected_answer", "capability_target", "reasoning", "license", "lean_header", "formal_statement")
    return {
        **row_correctness(row),
        **{f"meta_{column}": to_text(row.get(column)) for column in copied},
        "meta_difficulty_bin": difficulty_bin(row, split),
        "meta_domain": domain,
        "meta_tags": _collect_tags(row, conversation),
        "meta_eval_json": None if not has_value(row.get("metadata")) else canonical_json(row.get("metadata")),
        "meta_used_in": _to_texts(row.get("used_in")) or None,
        "meta_task": proof_task(row) if domain == "proof" else None,
        "meta_source_json": _encode_unused_columns(row, rules),
    }


def difficulty_bin(row: Row, split: str) -> str | None:
    """Return the difficulty of a row: `low`, `medium` or `high`; None if unknown.

    The difficulty is read from a column of the row, or else from the start of the split's name.
    """
    # Math-v2 has splits such as `high_part00`.
    stated = (row.get("difficulty_bin"), row.get("difficulty"), re.split(r"[_.-]", split)[0])
    return next((word for word in stated if isinstance(word, str) and word in ("low", "medium", "high")), None)


def row_correctness(row: Row) -> dict[str, object]:
    """Return a row's correctness columns; its evaluations may be JSON text."""
    return read_correctness(read_object(row.get("metadata")))


def _collect_tags(row: Row, conversation: RowConversation) -> list[str]:
    """Return a row's own tags, sources, features and failed checks as sorted tags."""
    messages = conversation.messages
    sources = (row.get(column) for column in ("data_source", "source"))
    features = {
        "changed_answer_to_majority": row.get("changed_answer_to_majority") is True,
        "tools": has_tools(row),
        "tool_calls": any([message.is_call for message in messages if message.recipient is not None]),
        "reasoning": "analysis" in [message.channel for message in messages],
        "multi_turn": [message.role for message in messages].count(Role.USER) > 1,
    }
    tags = {*_to_texts(row.get("tags")), *(tag for tag, is_present in features.items() if is_present)}
    tags.update(f"check:{name}" for name in conversation.failed_checks)
    return sorted(tags | {f"source:{source}" for source in sources if isinstance(source, str) and source})


def _encode_unused_columns(row: Row, rules: RowsRecipe) -> str | None:
    omitted = _STORED_COLUMNS - {"messages"} if has_value(row.get("text")) else _STORED_COLUMNS
    uuid = to_text(row.get("uuid"))
    if uuid is not None and not is_row_id(uuid):
        omitted -= {"uuid"}
    omitted |= set() if rules.keep_user_names else {"user_name"}
    omitted |= set() if rules.keep_urls else {"url", "user_url"}
    remaining = {name: value for name, value in row.items() if name not in omitted and has_value(value)}
    return canonical_json(remaining) if remaining else None


def _to_texts(value: JsonValue) -> list[str]:
    """Convert a value, or each item of a list, to text; omit missing values."""
    values = value if isinstance(value, list) else [value]
    return [text for text in map(to_text, values) if text is not None]


RUN_TOKENS = 16
# A run is hashed as a polynomial modulo 2**32. The base has the golden ratio's bits (Knuth, TAOCP vol. 3, 6.4) and is
# odd, so that multiplication is invertible. Its powers 1, 2, 4, 8 join runs of that many tokens.
_HASH_BASE_POWERS = [np.uint32(pow(0x9E3779B1, 1 << step, 1 << 32)) for step in range(RUN_TOKENS.bit_length() - 1)]


def repeated_fraction(ids: NDArray[np.int32]) -> float:
    """Compute the fraction of 16-token runs that also occur earlier in `ids`.

    The fraction is rounded to four digits; it is 0 for a text with fewer than two runs. Reasoning that quotes its
    problem reaches 0.16 in real rows; a text that loops to its end approaches 1. Runs are compared by 32-bit hashes, so
    the fraction of n runs is about n / 2**33 too high: 0.0001 for 10⁶ tokens.
    """
    runs = len(ids) - RUN_TOKENS + 1
    if runs < 2:
        return 0.0
    hashes = ids.view(np.uint32)
    # At first each token is its own hash. Step k joins two adjacent runs of 2**k tokens:
    # hash(first + second) = hash(first) * base**(2**k) + hash(second). uint32 wraps around, which is the modulus.
    for step, power in enumerate(_HASH_BASE_POWERS):
        first = hashes[: -(1 << step)] * power
        first += hashes[1 << step :]
        hashes = first
    hashes.sort()  # equal runs become neighbours: each neighbour pair is one repetition
    return round(float(np.count_nonzero(hashes[1:] == hashes[:-1])) / runs, 4)


def row_stats(parsed: ParsedText, encoded: HarmonyTokens, loss_mode: LossMode) -> dict[str, object]:
    """Return a text's columns `stats_…`; invalid Harmony has no messages to count."""
    tokens, bodies = len(encoded.ids), encoded.bodies.tolist()
    loss_bodies = (bodies[number] for number in loss_message_indexes(parsed, loss_mode))
    return {
        "stats_char_len": len(parsed.text),
        "stats_approx_tokens": tokens,  # an estimate in existing datasets, exact here
        "stats_tokens": tokens,
        "stats_completion_tokens": sum(stop - start for start, stop in loss_bodies),
        "stats_turns": [message.role for message in parsed.conversation].count(Role.USER),
        "stats_tool_calls": len(parsed.calls),
    }


def has_completion(conversation: RowConversation) -> bool:
    """Check whether the last message is non-blank and counts in the loss.

    If the row has its own mask (`train_turns`), check instead whether any message that counts is non-blank.
    """
    messages = conversation.parsed.conversation
    counting, last = loss_message_indexes(conversation.parsed, conversation.loss_mode), len(messages) - 1
    if conversation.has_own_mask:
        return any(messages[number].content.strip() for number in counting)
    return counting[-1:] == [last] and bool(messages[last].content.strip())


def row_quality(conversation: RowConversation, tokens: HarmonyTokens, tools: DeclaredTools | None) -> dict[str, object]:
    """Return the columns `quality_…` of a text, as if it had no near duplicates."""
    parsed = conversation.parsed
    is_valid, calls = bool(parsed.messages), parsed.calls
    is_chat_template = uses_chat_template(conversation.template)
    # A row that came as Harmony text may declare its tools only in the text.
    knows_tools = is_valid and not (conversation.is_from_text_column and calls and tools is None)
    return {
        "quality_valid_harmony": None if is_chat_template else is_valid,
        "quality_completion_nonempty": has_completion(conversation),
        "quality_valid_tool_schema": calls_fit_tools(calls, tools) if knows_tools else None,
        "quality_is_duplicate": False,
        "quality_duplicate_of": None,
        "quality_similarity": None,
        "quality_length": length_bin(len(tokens.ids)),
        "quality_repetition": repeated_fraction(tokens.ids),
        "quality_empty_messages": sum([not message.content.strip() for message in parsed.conversation[:-1]]),
        "quality_known_channels": None if is_chat_template else has_known_channels(parsed),
        "quality_control_characters": count_control_characters(parsed),
        "quality_stalled_calls": conversation.stalled_calls,
    }


def length_bin(tokens: int) -> Literal["short", "normal", "long"]:
    return "short" if tokens < 128 else "long" if tokens > 16_384 else "normal"
