"""A message: its header, content and control tokens, the templates that write it, and why one is refused.

Seven control tokens give a conversation its form (openai/harmony, docs/format.md, "Special Tokens"). Content may hold
none of them, nor any other text that the vocabulary has a special id for: Harmony knows no escape, so whoever encodes
such a text with special tokens allowed would read it as structure.

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
STRUCTURE = (START, MESSAGE, CHANNEL, CONSTRAIN, END, CALL, RETURN)

# tiktoken's o200k_harmony has <|endofprompt|> where openai-harmony has a reserved name; <|reserved_201088|> is
# openai-harmony's alone. Reserved names of ids that have another name are no tokens; they are matched all the same.
SPECIAL = re.compile(
    r"<\|(?:start|message|channel|constrain|end|call|return|startoftext|endoftext|endofprompt"
    r"|reserved_20(?:0\d{3}|10[0-7]\d|108[0-8]))\|>"
)
STRUCTURE_OR_TEXT = re.compile(f"({'|'.join(map(re.escape, STRUCTURE))})")
_MOST_BARS = 16


def first_special(text: str, start: int, stop: int) -> re.Match[str] | None:
    """The first match of `SPECIAL` in a part of a text.

    Contents are long and hold none. A single character is found many times faster than two, and `|` is rare in most of
    them; in a table, where it isn't, two are looked for after some.
    """
    place = start
    for _ in range(_MOST_BARS):
        bar = text.find("|", place, stop)
        if bar < 0:
            return None
        place = bar + 1
        if bar > start and text[bar - 1] == "<" and (found := SPECIAL.match(text, bar - 1, stop)):
            return found
    return SPECIAL.search(text, place - 1, stop)


class Reason(StrEnum):
    """The code under which a refused row is counted.

    Of content: `control_tokens_in_content`, `lone_surrogate` (no UTF-8 has it), `not_encodable` (blanks that the
    tokenizer fails on). Of headers: `invalid_header_field`, `unknown_role`, Of texts:
    `text_outside_messages`, `malformed_header`, `two_recipients`, `message_not_closed`, `wrong_terminator`,
    `no_next_role`. Of tools: `schema_too_deep`, `number_out_of_range`, `namespace_twice`.
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
    """A conversation or text that is no Harmony; one row's fault, so a reader counts it and goes on.

    Args:
        reason: the code.
        detail: what is there, for the reject's line.
        position: in characters: of the text where a text was read, of the message's content where one was rendered;
            None where it is no content's fault.
        message: the message's number, from 0, where messages were rendered; None where a text was read.
    """

    def __init__(self, reason: StrEnum, detail: str, position: int | None = None, message: int | None = None) -> None:
        super().__init__(reason, detail, position, message)
        self.reason = reason
        self.detail = detail
        self.position = position
        self.message = message

    def __str__(self) -> str:
        where = "" if self.message is None else f" in message {self.message}"
        return f"{self.reason}: {self.detail}{where}" + ("" if self.position is None else f" at {self.position}")


class Template(StrEnum):
    """A way to write messages; the number changes whenever any conversation's text does.

    `harmony/1`: as openai-harmony 0.0.8 renders, with the object types of tool schemas filled in (`with_object_types`).
    `plain/1`: `<|start|>author<|message|>…<|end|>` and nothing else, as datasets have it that know no channels; it is
        read, and not rendered.
    """

    HARMONY_1 = "harmony/1"
    PLAIN_1 = "plain/1"


class Analysis(StrEnum):
    """What becomes of messages on the analysis channel, whoever sends them.

    `keep`: all are rendered. `drop`: none is. `auto_drop`: openai-harmony's default: if the last assistant message is
    on the final channel, those before the first message on it are dropped, so that a single turn loses all.
    """

    KEEP = "keep"
    DROP = "drop"
    AUTO_DROP = "auto_drop"


class Ending(StrEnum):
    """How the text ends.

    `training`: as `render_conversation_for_training`: a last assistant message on the final channel ends with
    `<|return|>`. `conversation`: each message ends with its own token. `completion`: then `<|start|>assistant`.
    """

    TRAINING = "training"
    CONVERSATION = "conversation"
    COMPLETION = "completion"


# openai-harmony reads no JSON beyond a depth of 128; a schema takes two levels a property.
MAX_DEPTH = 60

JsonValue: TypeAlias = "dict[str, JsonValue] | list[JsonValue] | str | int | float | bool | None"


def content_text(content: JsonValue) -> str:
    """The content of a message: a string as it is, anything else as JSON with sorted keys; NaN and infinities, which
    JSON has not, as null.
    """
    if isinstance(content, str):
        return content
    try:
        return json.dumps(content, sort_keys=True, ensure_ascii=False, allow_nan=False)
    except ValueError:
        return json.dumps(finite(content), sort_keys=True, ensure_ascii=False)


def finite(value: JsonValue) -> JsonValue:
    """The value with null for NaN and infinities, at any depth."""
    if isinstance(value, dict):
        return {key: finite(one) for key, one in value.items()}
    if isinstance(value, list):
        return [finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def compact_json(value: JsonValue) -> str:
    """JSON without blanks, keys in their own order, numbers as openai-harmony writes them: msgspec does so too.

    A number is written exactly. openai-harmony, which reads it first, is off in the last digit for some that have more
    than 15 digits or are smaller than 1e-22 or larger than 1e22.

    Raises:
        Refusal: a number that openai-harmony can't read: NaN, infinity, an integer beyond all floats; or a value nested
            deeper than `MAX_DEPTH`.
    """
    return msgspec.json.encode(_readable(value)).decode()


def _readable(value: JsonValue, depth: int = 0) -> JsonValue:
    """The value with floats for integers of more than 64 bits, as openai-harmony reads them."""
    if depth > MAX_DEPTH:
        raise Refusal(Reason.SCHEMA_TOO_DEEP, f"a default is nested more than {MAX_DEPTH} deep")
    match value:
        case dict():
            return {key: _readable(one, depth + 1) for key, one in value.items()}
        case list():
            return [_readable(one, depth + 1) for one in value]
        case float() if math.isfinite(value):
            return value
        case int() if not -(2**63) <= value < 2**64:
            with suppress(OverflowError):
                return float(value)
        case bool() | str() | int() | None:
            return value
    raise Refusal(Reason.NUMBER_OUT_OF_RANGE, f"{value!r:.40} in a tool's schema")


# Harmony sets no limit. No tool is called so, and the length of what is kept of a malformed text is bounded.
FIELD = r"[^\s<\ud800-\udfff]{1,256}+"
_IS_FIELD = re.compile(FIELD)
_IS_CONTENT_TYPE = re.compile(f"(?:{re.escape(CONSTRAIN)}|(?!to=)){FIELD}")
# Tools that answer under a name without a namespace: Harmony's built-in one, and the bare role of older datasets.
_UNDOTTED_TOOLS = frozenset({"python", "tool"})


class Role(StrEnum):
    """Who speaks."""

    SYSTEM = "system"
    DEVELOPER = "developer"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


SPEAKERS = {str(role): role for role in Role if role is not Role.TOOL}


class Message(NamedTuple):
    """One message; what its header has not is None.

    Attributes:
        content: text without control tokens; a system or developer message's sections are part of it.
        name: the tool (`functions.lookup`), always there for a tool; else the name after the role.
        recipient: whom it goes to. An assistant message with one is a call, and its content the arguments.
        channel: `analysis`, `commentary`, `final`.
        content_type: how the content is written, `<|constrain|>json` for a call's arguments.
    """

    role: Role
    content: str
    name: str | None = None
    recipient: str | None = None
    channel: str | None = None
    content_type: str | None = None

    @property
    def is_call(self) -> bool:
        """Whether the assistant calls a tool."""
        return self.role is Role.ASSISTANT and self.recipient is not None

    @property
    def is_plain(self) -> bool:
        """Whether its header is an author alone."""
        return self.recipient is None and self.channel is None and self.content_type is None


@lru_cache(maxsize=4096)
def header(role: Role, name: str | None, recipient: str | None, channel: str | None, content_type: str | None) -> str:
    """What stands between `<|start|>` and `<|message|>`.

    The recipient `all`, which openai-harmony leaves out, is refused: it could not be read back.

    Raises:
        Refusal: a field is empty, holds blanks, `<` or a lone surrogate, or is longer than 256; a tool's name is
            missing, or would be read as another author.
    """
    fields = {"name": name, "recipient": recipient, "channel": channel}
    for field, value in fields.items():
        if value is not None and (_IS_FIELD.fullmatch(value) is None or (field, value) == ("recipient", "all")):
            raise Refusal(Reason.INVALID_HEADER_FIELD, f"{field} is {value!r:.80}")
    if content_type is not None and _IS_CONTENT_TYPE.fullmatch(content_type) is None:
        raise Refusal(Reason.INVALID_HEADER_FIELD, f"content type is {content_type!r:.80}")
    author = str(role) if name is None else name if role is Role.TOOL else f"{role}:{name}"
    if (role is Role.TOOL and name is None) or read_author(author, recipient is not None) != (role, name):
        raise Refusal(Reason.UNKNOWN_ROLE, f"a {role} message by {name!r:.80}")
    to = "" if recipient is None else f" to={recipient}"
    on = "" if channel is None else f"{CHANNEL}{channel}"
    return author + to + on + ("" if content_type is None else f" {content_type}")


@lru_cache(maxsize=4096)
def read_author(author: str, has_recipient: bool) -> tuple[Role, str | None] | None:
    """Role and name; None if nobody is called so.

    A name that is no role is a tool's if it has a dot (`functions.lookup`), if its message has a recipient, or if it
    is `python` or `tool`. Anything else may be a misspelt role.
    """
    role, colon, name = author.partition(":")
    if (speaker := SPEAKERS.get(role)) is not None:
        return None if colon and not name else (speaker, name or None)
    return (Role.TOOL, author) if has_recipient or "." in author or author in _UNDOTTED_TOOLS else None
