"""Harmony messages with their headers, contents and control tokens.

Seven control tokens structure a conversation (openai/harmony, docs/format.md, "Special Tokens"). Content must not
contain any special token: a control token, or any other text for which the vocabulary has a special id. Harmony has no
escapes, so an encoder that allows special tokens would read such text as structure.

A header is `author[ to=RECIPIENT][<|channel|>CHANNEL][ CONTENT_TYPE]` (openai/harmony, docs/format.md, "Message
format"). An author is a role, a role with a name (`user:ann`) or the name of a tool alone (`functions.lookup`).
"""

import json
import math
import re
from contextlib import suppress
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import msgspec

START, MESSAGE, CHANNEL, CONSTRAIN = "<|start|>", "<|message|>", "<|channel|>", "<|constrain|>"
END, CALL, RETURN = "<|end|>", "<|call|>", "<|return|>"
CONTROL_TOKENS = (START, MESSAGE, CHANNEL, CONSTRAIN, END, CALL, RETURN)

# tiktoken's o200k_harmony has <|endofprompt|> where openai-harmony has a reserved name; only openai-harmony has
# <|reserved_201088|>. The pattern also matches the reserved names of ids such as <|start|>, which are not tokens.
SPECIAL_PATTERN = re.compile(
    r"<\|(?:start|message|channel|constrain|end|call|return|startoftext|endoftext|endofprompt"
    r"|reserved_20(?:0\d{3}|10[0-7]\d|108[0-8]))\|>"
)
CONTROL_TOKEN_PATTERN = re.compile(f"({'|'.join(map(re.escape, CONTROL_TOKENS))})")
_MAX_BARS = 16


def find_special(text: str, start: int, stop: int) -> re.Match[str] | None:
    """Return the first match of `SPECIAL_PATTERN` in `text[start:stop]`, or None."""
    position = start
    # In most texts, searching `|` is many times faster than searching `<|`; tables have too many `|`.
    for _ in range(_MAX_BARS):
        bar = text.find("|", position, stop)
        if bar < 0:
            return None
        position = bar + 1
        if bar > start and text[bar - 1] == "<" and (match := SPECIAL_PATTERN.match(text, bar - 1, stop)):
            return match
    return SPECIAL_PATTERN.search(text, position - 1, stop)


class Reason(StrEnum):
    """Reason code of a `Refusal`, under which refused rows are counted.

    Contents: `control_tokens_in_content`, `lone_surrogate` (not encodable as UTF-8), `not_encodable` (the tokenizer
    fails on a run of whitespace). Headers: `invalid_header_field`, `unknown_role`. Texts:
    `text_outside_messages`, `malformed_header`, `two_recipients`, `message_not_closed`, `wrong_terminator`,
    `no_next_role`. Tools: `schema_too_deep`, `number_out_of_range`, `namespace_twice`.
    """

    CONTROL_TOKENS_IN_CONTENT = "control_tokens_in_content"
    LONE_SURROGATE = "lone_surrogate"
    NOT_ENCODABLE = "not_encodable"
    INVALID_HEADER_FIELD = "invalid_header_field"
    UNKNOWN_ROLE = "unknown_role"
    TEXT_OUTSIDE_MESSAGES = "text_outside_messages"
    MALFORMED_HEADER = "malformed_header"
    TWO_RECIPIENTS = "two_recipients"
    MESSAGE_NOT_CLOSED = "message_not_closed"
    WRONG_TERMINATOR = "wrong_terminator"
    NO_NEXT_ROLE = "no_next_role"
    SCHEMA_TOO_DEEP = "schema_too_deep"
    NUMBER_OUT_OF_RANGE = "number_out_of_range"
    NAMESPACE_TWICE = "namespace_twice"


class Refusal(Exception):
    """Exception for a conversation or text that cannot be parsed, rendered or encoded.

    Only one row is at fault, so a reader of rows counts the row and continues.
    """

    def __init__(
        self,
        reason: StrEnum,
        detail: str,
        position: int | None = None,
        index: int | None = None,
        text_index: int | None = None,
    ) -> None:
        super().__init__(reason, detail, position, index, text_index)
        self.reason = reason
        self.detail = detail  # short description of the fault, such as the text at fault
        self.position = position  # in characters of the parsed text or of the rendered content; None if unknown
        self.index = index  # of the message that cannot be rendered; else None
        self.text_index = text_index  # of the text that cannot be encoded, among several texts; else None

    def __str__(self) -> str:
        where = "" if self.index is None else f" in message {self.index}"
        return f"{self.reason}: {self.detail}{where}" + ("" if self.position is None else f" at {self.position}")


class Template(StrEnum):
    """Format of a conversation as text, with a version number.

    The number changes whenever the text of any conversation changes. `harmony/1`: the text of openai-harmony 0.0.8,
    after `add_object_types` has completed the tool schemas. `plain/1`: only `<|start|>author<|message|>…<|end|>`, as in
    datasets without channels; it is parsed, but not rendered.
    """

    HARMONY_1 = "harmony/1"
    PLAIN_1 = "plain/1"


class AnalysisMode(StrEnum):
    """Treatment of messages on the analysis channel, from any sender.

    `keep` renders all of them, `drop` none. `auto_drop` is openai-harmony's default: if the last assistant message is
    on the final channel, analysis messages before the first final message are dropped.
    """

    KEEP = "keep"
    DROP = "drop"
    AUTO_DROP = "auto_drop"


class Ending(StrEnum):
    """End of a rendered text.

    `conversation`: every message ends with `<|end|>`, or `<|call|>` if it is a call. `training`: like `conversation`,
    but a last message that the assistant sends on the final channel ends with `<|return|>`, as in
    `render_conversation_for_training`. `completion`: like `conversation`, followed by `<|start|>assistant`.
    """

    TRAINING = "training"
    CONVERSATION = "conversation"
    COMPLETION = "completion"


# openai-harmony reads JSON up to a depth of 128; each property of a schema takes two levels.
MAX_DEPTH = 60

JsonValue: TypeAlias = "dict[str, JsonValue] | list[JsonValue] | str | int | float | bool | None"


def content_text(content: JsonValue) -> str:
    """Return a string unchanged; encode other values as JSON with sorted keys.

    NaN and ±∞ become null.
    """
    if isinstance(content, str):
        return content
    try:
        return json.dumps(content, sort_keys=True, ensure_ascii=False, allow_nan=False)
    except ValueError:
        return json.dumps(replace_non_finite(content), sort_keys=True, ensure_ascii=False)


def replace_non_finite(value: JsonValue) -> JsonValue:
    """Replace NaN and infinities with null, at any depth."""
    if isinstance(value, dict):
        return {key: replace_non_finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [replace_non_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def compact_json(value: JsonValue) -> str:
    """Encode a value as JSON without spaces; keys keep their order.

    Integers beyond 64 bits become floats, as in openai-harmony; other numbers are exact. openai-harmony may write
    a different last digit if a number has more than 15 digits, is below 1e-22 or is above 1e22. Raise Refusal for NaN,
    infinity, an integer too large for a float, and a value nested deeper than `MAX_DEPTH`.
    """
    return msgspec.json.encode(_convert_numbers(value)).decode()


def _convert_numbers(value: JsonValue, depth: int = 0) -> JsonValue:
    """Replace integers beyond 64 bits with floats; raise Refusal as in `compact_json`."""
    if depth > MAX_DEPTH:
        raise Refusal(Reason.SCHEMA_TOO_DEEP, f"a default is nested more than {MAX_DEPTH} deep")
    match value:
        case dict():
            return {key: _convert_numbers(item, depth + 1) for key, item in value.items()}
        case list():
            return [_convert_numbers(item, depth + 1) for item in value]
        case float() if math.isfinite(value):
            return value
        case int() if not -(2**63) <= value < 2**64:
            with suppress(OverflowError):
                return float(value)
        case bool() | str() | int() | None:
            return value
    raise Refusal(Reason.NUMBER_OUT_OF_RANGE, f"{value!r:.40} in a tool's schema")


# Harmony does not limit a field. No real name has 256 characters, and the limit bounds the excerpt of a bad text.
FIELD_PATTERN = r"[^\s<\ud800-\udfff]{1,256}+"
_FIELD = re.compile(FIELD_PATTERN)
_CONTENT_TYPE = re.compile(f"(?:{re.escape(CONSTRAIN)}|(?!to=)){FIELD_PATTERN}")
# Tools that reply under a name without a namespace: Harmony's built-in one, and the bare role of older datasets.
_UNDOTTED_TOOLS = frozenset({"python", "tool"})


class Role(StrEnum):
    SYSTEM = "system"
    DEVELOPER = "developer"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


NON_TOOL_ROLES = {str(role): role for role in Role if role is not Role.TOOL}


class Message(NamedTuple):
    """Message of a conversation; a header field that is missing is None.

    The `name` of a tool, such as `functions.lookup`, is never None. For another role, it is the name after the colon,
    such as `ann` in `user:ann`. An assistant message with a recipient is a call, and its content is the arguments.
    """

    role: Role
    content: str  # without special tokens; in a system or developer message, with sections such as `# Tools`
    name: str | None = None
    recipient: str | None = None
    channel: str | None = None
    content_type: str | None = None  # format of the content, such as `<|constrain|>json` for the arguments of a call

    @property
    def is_call(self) -> bool:
        """True if the assistant calls a tool."""
        return self.role is Role.ASSISTANT and self.recipient is not None

    @property
    def is_plain(self) -> bool:
        """True if the header has no recipient, channel or content type."""
        return self.recipient is None and self.channel is None and self.content_type is None


@lru_cache(maxsize=4096)
def render_header(
    role: Role, name: str | None, recipient: str | None, channel: str | None, content_type: str | None
) -> str:
    """Return the header between `<|start|>` and `<|message|>`.

    The recipient `all` is refused: openai-harmony omits it, so a parser could not restore it.

    Raises:
        Refusal: A field is empty, has spaces, `<` or a lone surrogate, or is longer than 256 characters; a tool's name
            is missing or would be parsed as a different author; or the content type begins with `to=`.
    """
    fields = {"name": name, "recipient": recipient, "channel": channel}
    for field, value in fields.items():
        if value is not None and (_FIELD.fullmatch(value) is None or (field, value) == ("recipient", "all")):
            raise Refusal(Reason.INVALID_HEADER_FIELD, f"{field} is {value!r:.80}")
    if content_type is not None and _CONTENT_TYPE.fullmatch(content_type) is None:
        raise Refusal(Reason.INVALID_HEADER_FIELD, f"content type is {content_type!r:.80}")
    author = str(role) if name is None else name if role is Role.TOOL else f"{role}:{name}"
    if (role is Role.TOOL and name is None) or split_author(author, recipient is not None) != (role, name):
        raise Refusal(Reason.UNKNOWN_ROLE, f"a {role} message by {name!r:.80}")
    to = "" if recipient is None else f" to={recipient}"
    on = "" if channel is None else f"{CHANNEL}{channel}"
    return author + to + on + ("" if content_type is None else f" {content_type}")


@lru_cache(maxsize=4096)
def split_author(author: str, has_recipient: bool) -> tuple[Role, str | None] | None:
    """Split an author into role and name; return None for an unknown author.

    An author that is not a role is a tool if it has a dot (`functions.lookup`), if its message has a recipient, or if
    it is `python` or `tool`. Any other word may be a misspelt role, so it is unknown.
    """
    role, colon, name = author.partition(":")
    if (speaker := NON_TOOL_ROLES.get(role)) is not None:
        return None if colon and not name else (speaker, name or None)
    return (Role.TOOL, author) if has_recipient or "." in author or author in _UNDOTTED_TOOLS else None
