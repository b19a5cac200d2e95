"""Standard form of source rows, which publishers write in several forms.

| published | standard |
|---|---|
| `messages`, a message, or the `tool_calls` of a message as JSON text | a list or an object |
| `thinking` or `enable_thinking` in `chat_template_kwargs` | the label `reasoning`, `on` or `off` |
| a missing or blank first prompt, with `seed_prompt_sha256` in `metadata` | the prompt of a seed set |
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from pipeline_assets.corpus.harmony.message import JsonValue
from pipeline_assets.corpus.nemotron.dataset_section import PromptLookup
from pipeline_assets.corpus.nemotron.message_text import is_blank_content, unread_count_key
from pipeline_assets.corpus.nemotron.row_values import (
    Row,
    RowFault,
    RowReason,
    canonical_json,
    decode_json,
    has_value,
    to_text,
)
from pipeline_assets.corpus.readers.nesting import is_nested_within

_REASONING_SWITCHES = ("thinking", "enable_thinking")


def standard_row(row: Row, counts: Counter[str]) -> Row:
    """Return a row with its messages as objects, and with its reasoning label.

    Reasoning switches are `thinking` and `enable_thinking` in `chat_template_kwargs`. If all switches are booleans that
    agree with each other and with the label, they are removed, and a missing label is set to their value. Otherwise all
    switches are kept and counted as unread keys. JSON text that cannot be read raises RowFault.
    """
    messages = row.get("messages")
    if isinstance(messages, str) and messages:
        messages = decode_json(messages, RowReason.WRONG_TYPE, "messages")
    if isinstance(messages, list):
        messages = [_read_message(number, message) for number, message in enumerate(messages)]
    kwargs = read_object(row.get("chat_template_kwargs"))
    switches = {key: kwargs[key] for key in _REASONING_SWITCHES if kwargs.get(key) is not None}
    labels = {("off", "on")[value] if isinstance(value, bool) else None for value in switches.values()}
    label = to_text(row.get("reasoning")) or next(iter(labels), None)
    if label is not None and labels == {label}:
        rest = {key: value for key, value in kwargs.items() if key not in switches}
        return {**row, "messages": messages, "reasoning": label, "chat_template_kwargs": rest or None}
    counts.update(unread_count_key("chat_template_kwargs", key) for key in switches)
    return {**row, "messages": messages}


def _read_message(index: int, message: JsonValue) -> JsonValue:
    if isinstance(message, str):
        message = decode_json(message, RowReason.MALFORMED_MESSAGE, f"message {index}")
    if isinstance(message, dict) and isinstance(calls := message.get("tool_calls"), str) and calls:
        calls = decode_json(calls, RowReason.MALFORMED_TOOL_CALL, f"tool_calls of message {index}")
        return {**message, "tool_calls": calls}
    return message


def read_object(value: JsonValue) -> Mapping[str, JsonValue]:
    """Return an object, or decode it from JSON text.

    The result is empty for any other value, and for an object that is nested too deep.
    """
    if isinstance(value, str) and value.startswith("{"):
        with suppress(msgspec.DecodeError, RecursionError):
            value = msgspec.json.decode(value)
    return value if isinstance(value, dict) and is_nested_within(value) else {}


def withheld_prompt(row: Row) -> tuple[int, str] | None:
    """Return (message index, sha256) of the first user message if withheld, else None."""
    messages = row.get("messages")
    for number, message in enumerate(messages if isinstance(messages, list) else ()):
        if isinstance(message, dict) and message.get("role") == "user":
            if not is_blank_content(message.get("content")) or has_value(row.get("text")):
                return None
            digest = to_text(read_object(row.get("metadata")).get("seed_prompt_sha256"))
            return None if digest is None else (number, digest.lower())
    return None


def restore_prompt(row: Row, find_prompt: PromptLookup | None, counts: Counter[str]) -> Row:
    """Restore and count a withheld prompt of a row in standard form; return the row.

    A row without a withheld prompt is returned as it is. A prompt that `find_prompt` does not find raises RowFault with
    the reason `prompt_withheld`.
    """
    if (withheld := withheld_prompt(row)) is None:
        return row
    number, digest = withheld
    if find_prompt is None or (prompt := find_prompt(digest)) is None:
        raise RowFault(RowReason.PROMPT_WITHHELD, f"no seed set has the prompt with sha256 {digest:.64}")
    messages = list[Any](row["messages"])  # type: ignore[arg-type]
    messages[number] = {**messages[number], "content": prompt}
    counts["prompts_restored"] += 1
    return {**row, "messages": messages}


def read_train_turns(row: Row, roles: Sequence[str], counts: Counter[str]) -> list[bool] | None:
    """Return `train_turns` of a row: whether each message may count in the loss.

    Return None if the row lacks the key. `roles` are the roles of the row's messages. Raise RowFault unless the value
    is a list with a boolean for each message. A row with the key is counted as `train_turns`. True values for roles
    other than the assistant have no effect, and are counted as unread keys.
    """
    turns = read_object(row.get("metadata")).get("train_turns")
    if turns is None:
        return None
    if not isinstance(turns, list) or len(turns) != len(roles) or not all(isinstance(turn, bool) for turn in turns):
        detail = f"expected a boolean for each of {len(roles)} messages, got {canonical_json(turns):.80}"
        raise RowFault(RowReason.MALFORMED_TRAIN_TURNS, detail)
    unread = [role for role, turn in zip(roles, turns, strict=True) if turn and role != "assistant"]
    counts.update(["train_turns", *(unread_count_key(role, "train_turns") for role in unread)])
    return [bool(turn) for turn in turns]
