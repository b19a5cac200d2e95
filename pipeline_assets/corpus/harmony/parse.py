"""Parser of Harmony texts into messages with exact spans.

Texts of both templates (`Template`) are parsed, with variants that models and the official test vectors write: a
recipient before or after the channel, `<|return|>` after any assistant message, and a content type without
`<|constrain|>`. openai-harmony reads this content type as a recipient if the header lacks ` to=`. Nothing is repaired.
"""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import Literal, NamedTuple

from pipeline_assets.corpus.harmony.message import (
    CALL,
    CHANNEL,
    CONSTRAIN,
    END,
    FIELD_PATTERN,
    MESSAGE,
    NON_TOOL_ROLES,
    RETURN,
    START,
    Message,
    Reason,
    Refusal,
    Role,
    Template,
    find_special,
    split_author,
)

# A recipient, a channel, a recipient again, then a content type with or without `<|constrain|>`: each may be missing.
_AFTER_AUTHOR = (
    rf"(?: to=({FIELD_PATTERN}))?(?:{re.escape(CHANNEL)}({FIELD_PATTERN}))?(?: to=({FIELD_PATTERN}))?"
    rf"(?: ?({re.escape(CONSTRAIN)}{FIELD_PATTERN})| (?!to=)({FIELD_PATTERN}))?{re.escape(MESSAGE)}"
)
_HEADER = re.compile(rf"{re.escape(START)}({FIELD_PATTERN}){_AFTER_AUTHOR}")
_CONTINUED_HEADER = re.compile(f"(){_AFTER_AUTHOR}")


class Terminator(StrEnum):
    """Control token that ends a message."""

    END = END
    CALL = CALL
    RETURN = RETURN


_MAX_HEADER_CHARACTERS = 1500  # room for five fields of 256 and the text between them
_TERMINATORS = {str(terminator): terminator for terminator in Terminator}


class Span(NamedTuple):
    """Range of character positions, from `start` up to, but not including, `stop`."""

    start: int
    stop: int


class ParsedMessage(NamedTuple):
    """Message with its position in a text.

    The `terminator` is None in a text of a chat template, and for a last message that is open (`ending="open"`).
    """

    message: Message
    terminator: Terminator | None
    span: Span  # whole message, including `<|start|>` and the terminator if the text has them
    body: Span  # content; in Harmony, between `<|message|>` and the terminator


@dataclass(frozen=True)
class ParsedText:
    """Text with its messages, whose spans follow one another without a gap."""

    text: str
    messages: tuple[ParsedMessage, ...]
    next_role: Role | None  # announced at the end of the text (`ending="next_role"`); else None
    utf8: bytes = field(repr=False)  # the text, encoded once

    @cached_property
    def conversation(self) -> list[Message]:
        """Messages without positions, for `render_harmony`."""
        return [parsed.message for parsed in self.messages]

    @cached_property
    def calls(self) -> list[Message]:
        """Messages in which the assistant calls a tool."""
        return [message for message in self.conversation if message.recipient is not None and message.is_call]

    @property
    def template(self) -> Template:
        """Template of a Harmony text; `plain/1` if the text is valid in both templates."""
        is_plain = all(parsed.message.is_plain and parsed.terminator is Terminator.END for parsed in self.messages)
        return Template.PLAIN_1 if is_plain else Template.HARMONY_1


def parse_harmony(
    text: str, *, opening: Role | None = None, ending: Literal["closed", "next_role", "open"] = "closed"
) -> ParsedText:
    """Parse a text into messages; by default, an empty text is valid.

    Args:
        text: Text of the template `harmony/1` or `plain/1`.
        opening: Role of the first message if that message lacks `<|start|>` and author, as in the output of a model
            after `<|start|>assistant`; None if the text begins with `<|start|>`.
        ending: `closed`: the last message has its terminator. `next_role`: `<|start|>` and a role follow the last
            message, as in a prompt. `open`: the last message has no terminator, and its body is the rest of the text.

    Raises:
        Refusal: The text is not valid (`Refusal.position` is the position of the fault), or `opening` is a tool.
    """
    try:
        utf8 = text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise Refusal(Reason.LONE_SURROGATE, f"U+{ord(text[error.start]):04X}", error.start) from None
    if opening is Role.TOOL:
        raise Refusal(Reason.UNKNOWN_ROLE, "a tool is announced by its name, which is not known here", 0)
    stop, next_role = len(text), None
    if ending == "next_role":
        stop = text.rfind(START)
        role = text[stop + len(START) :] if stop >= 0 else ""
        if (next_role := NON_TOOL_ROLES.get(role)) is None:
            raise Refusal(Reason.NO_NEXT_ROLE, f"the text does not end with {START} and a role", len(text))
    messages = tuple(_parse_messages(text, stop, opening, ending == "open"))
    if ending == "open" and (not messages or messages[-1].terminator is not None):
        raise Refusal(Reason.TEXT_OUTSIDE_MESSAGES, "the last message is closed", stop)
    return ParsedText(text, messages, next_role, utf8)


def _parse_messages(text: str, stop: int, opening: Role | None, is_open: bool) -> Iterator[ParsedMessage]:
    start = 0
    while start < stop or opening is not None:
        end = text.find(MESSAGE, start, min(stop, start + _MAX_HEADER_CHARACTERS))
        header = _parse_header(text[start : end + len(MESSAGE)], opening) if end >= 0 else None
        if header is None:
            raise _header_refusal(text, start, stop, opening)
        body = end + len(MESSAGE)
        token = find_special(text, body, stop)
        if token is None and not is_open:
            raise Refusal(Reason.MESSAGE_NOT_CLOSED, "the text ends in a message", start)
        content = Span(body, token.start() if token else stop)
        message = Message(header.role, text[content.start : content.stop], *header[2:])
        terminator = _check_terminator(token, message) if token else None
        span = Span(start, token.end() if token else stop)
        yield ParsedMessage(message, terminator, span, content)
        start, opening = span.stop, None


@lru_cache(maxsize=4096)  # a dataset has few headers
def _parse_header(header: str, opening: Role | None) -> Message | None:
    """Parse a header into a message with empty content; return None if invalid."""
    match = (_HEADER if opening is None else _CONTINUED_HEADER).fullmatch(header)
    if match is None:
        return None
    author, before, channel, after, constrained, content_type = match.groups()
    recipient = before or after
    speaker = (opening, None) if opening is not None else split_author(author, recipient is not None)
    if speaker is None or recipient == "all" or (before and after):
        return None
    return Message(speaker[0], "", speaker[1], recipient, channel, constrained or content_type)


def _check_terminator(token: re.Match[str], message: Message) -> Terminator:
    terminator = _TERMINATORS.get(token.group())
    if terminator is None:
        raise Refusal(Reason.CONTROL_TOKENS_IN_CONTENT, token.group(), token.start())
    if (terminator is Terminator.CALL and not message.is_call) or (
        terminator is Terminator.RETURN and message.role is not Role.ASSISTANT
    ):
        raise Refusal(Reason.WRONG_TERMINATOR, f"{terminator} after a message that is no call or answer", token.start())
    return terminator


def _header_refusal(text: str, start: int, stop: int, opening: Role | None) -> Refusal:
    """Return the refusal that explains a missing or invalid header at `start`."""
    match = (_HEADER if opening is None else _CONTINUED_HEADER).match(text, start, stop)
    if match is not None:
        author, before, _, after, *_ = match.groups()
        if before and after:
            return Refusal(Reason.TWO_RECIPIENTS, f"{before} and {after}", start)
        is_known = opening is not None or split_author(author, bool(before or after)) is not None
        return Refusal(Reason.MALFORMED_HEADER if is_known else Reason.UNKNOWN_ROLE, match.group()[:80], start)
    if opening is None and not text.startswith(START, start, stop):
        return Refusal(Reason.TEXT_OUTSIDE_MESSAGES, repr(text[start : min(start + 40, stop)]), start)
    begin = start if opening is not None else start + len(START)
    return Refusal(Reason.MALFORMED_HEADER, repr(text[begin : min(begin + 80, stop)]), start)


@dataclass(frozen=True)
class QualityFlags:
    """Quality flags of a text; all flags are false for text that is not valid Harmony."""

    valid_harmony: bool  # the text consists of one or more closed messages
    reason: StrEnum | None  # why the text is not valid; None if it is valid or empty
    completion_nonempty: bool  # the last message is the assistant's and is not blank
    has_user: bool
    has_analysis: bool  # an assistant message is on the analysis channel
    has_calls: bool
    calls_answered: bool  # the number of tool messages equals the number of calls; both may be 0


def basic_quality_flags_from_text(text: str) -> QualityFlags:
    """Compute the quality flags of a text in the template `harmony/1` or `plain/1`."""
    messages, reason = list[Message](), None
    try:
        messages = parse_harmony(text).conversation
    except Refusal as refusal:
        reason = refusal.reason
    is_completed = any(message.role is Role.ASSISTANT and message.content.strip() for message in messages[-1:])
    calls = sum(message.is_call for message in messages)
    by_assistant = [message for message in messages if message.role is Role.ASSISTANT]
    return QualityFlags(
        valid_harmony=bool(messages),
        reason=reason,
        completion_nonempty=is_completed,
        has_user=any(message.role is Role.USER for message in messages),
        has_analysis=any(message.channel == "analysis" for message in by_assistant),
        has_calls=calls > 0,
        calls_answered=bool(messages) and sum(message.role is Role.TOOL for message in messages) == calls,
    )


def sha1_text_id(text: str) -> str:
    """Return the hex sha1 of a text in UTF-8; the text must have no lone surrogate."""
    return hashlib.sha1(text.encode("utf-8"), usedforsecurity=False).hexdigest()
