"""Values of rows."""

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import TypeAlias

from pipeline_assets.corpus.harmony.message import JsonValue, Refusal, finite

Row: TypeAlias = Mapping[str, JsonValue]

# Made once: json.dumps would make an encoder for every value. JSON can't hold itself.
_encode = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, check_circular=False, allow_nan=False
).encode


def has_value(value: JsonValue) -> bool:
    """Whether a column or key has a value; `{}`, 0 and false are values."""
    return bool(value) or (value is not None and value != "" and value != [])


def canonical_text(value: JsonValue) -> str:
    """JSON with sorted keys and without blanks: one value, one text. Numbers are written as Python writes them; NaN and
    infinities, which Parquet has and JSON has not, as null.
    """
    try:
        return _encode(value)
    except ValueError:
        return _encode(finite(value))


def to_text(value: JsonValue) -> str | None:
    """A column that should be text: null if it is not there, canonical JSON if it is of another type."""
    if not has_value(value):
        return None
    return value if isinstance(value, str) else canonical_text(value)


class RowReason(StrEnum):
    """The code under which a rejected row is counted; `harmony.message.Reason` has the others.

    `no_messages`: there are none, nor a text, nor the parts of a proof. `no_problem`, `no_formal_statement`: a proof
    without messages lacks one. `wrong_type`: a column is of another type than it has to be. `malformed_message`,
    `malformed_tool_call`, `malformed_tools`: not the form that the datasets have. `unknown_role`. `reply_without_call`:
    a tool replies without a name, and no call waits. `lone_surrogate`: no UTF-8 has it. `nested_too_deep`: more than
    `columns.MAX_NESTING` values in values.
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


class RowFault(Refusal):
    """A row that can't be used, whatever its conversation is; its reason is a `RowReason`."""
