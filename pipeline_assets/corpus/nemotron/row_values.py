"""Values of source rows: missing values, canonical JSON and reasons of rejects.

A value is missing if it is absent, null, `""` or `[]`. These four are not distinguished, because the same row may
arrive as published JSON, which omits keys, or through Arrow, which sets omitted keys to null.
"""

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import TypeAlias, cast

import msgspec

from pipeline_assets.corpus.harmony.message import JsonValue, Refusal, replace_non_finite
from pipeline_assets.corpus.readers.nesting import limit_text_nesting

Row: TypeAlias = Mapping[str, JsonValue]

# One encoder, because json.dumps would create one for every value. JSON values cannot contain themselves.
_encode = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, check_circular=False, allow_nan=False
).encode


def has_value(value: JsonValue) -> bool:
    """Check that a value is not null, "" or []; `{}`, 0 and false do count as values."""
    return bool(value) or (value is not None and value != "" and value != [])


def canonical_json(value: JsonValue) -> str:
    """Return canonical JSON: sorted keys, no spaces, null for NaN and infinities."""
    try:
        return _encode(value)
    except ValueError:
        return _encode(replace_non_finite(value))


def decode_json(text: str, reason: "RowReason", where: str) -> JsonValue:
    """Decode a JSON text; raise RowFault with `reason` and `where` if it is not JSON."""
    try:
        limit_text_nesting(text)
        return cast(JsonValue, msgspec.json.decode(text))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RowFault(reason, f"{where} is text, but not JSON: {error}") from None


def to_text(value: JsonValue) -> str | None:
    """Return a string as it is, other values as canonical JSON, and None if missing."""
    if not has_value(value):
        return None
    return value if isinstance(value, str) else canonical_json(value)


class RowReason(StrEnum):
    """Reason code of a rejected row; `Reason` and `ChatReason` have further codes.

    `docs/nemotron.md`, "Rejects", explains the codes. A row with the code `prompt_withheld` is dropped, not rejected.
    """

    NO_MESSAGES = "no_messages"
    NO_PROBLEM = "no_problem"
    NO_FORMAL_STATEMENT = "no_formal_statement"
    WRONG_TYPE = "wrong_type"
    MALFORMED_MESSAGE = "malformed_message"
    MALFORMED_TOOL_CALL = "malformed_tool_call"
    MALFORMED_TOOLS = "malformed_tools"
    UNKNOWN_ROLE = "unknown_role"
    REPLY_WITHOUT_CALL = "reply_without_call"
    LONE_SURROGATE = "lone_surrogate"
    NESTED_TOO_DEEP = "nested_too_deep"
    MALFORMED_TRAIN_TURNS = "malformed_train_turns"
    PROMPT_WITHHELD = "prompt_withheld"


class RowFault(Refusal):
    """Exception for an unusable row; its reason is a `RowReason`."""
