"""Text → messages, with the characters that each takes.

Read are both templates, and what models and the official vectors write besides: the recipient before or after the
channel, `<|return|>` after any assistant message, a content type without `<|constrain|>` (which openai-harmony takes
for the recipient where there is no other). Nothing is repaired: a text is read whole or refused at its first fault.
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
    FIELD,
    MESSAGE,
    RETURN,
    SPEAKERS,
    START,
    Message,
    Reason,
    Refusal,
    Role,
    Template,
    first_special,
    read_author,
)

_AFTER_AUTHOR = (
    rf"(?: to=({FIELD}))?(?:{re.escape(CHANNEL)}({FIELD}))?(?: to=({FIELD}))?"
    rf"(?: ?({re.escape(CONSTRAIN)}{FIELD})| (?!to=)({FIELD}))?{re.escape(MESSAGE)}"
)
_HEADER = re.compile(rf"{re.escape(START)}({FIELD}){_AFTER_AUTHOR}")
_CONTINUED_HEADER = re.compile(f"(){_AFTER_AUTHOR}")


class Terminator(StrEnum):
    """What ends a message."""

    END = END
    CALL = CALL
    RETURN = RETURN


_HEADER_CHARACTERS = 1500  # five fields of 256, and what stands around them
_TERMINATORS = {str(terminator): terminator for terminator in Terminator}


class Span(NamedTuple):
    """Characters of a text, from `start` up to `stop`, which is excluded."""

    start: int
    stop: int


class ParsedMessage(NamedTuple):
    """A message and where it is.

    Attributes:
        terminator: None where the text ends before one (`ending="open"`).
        span: from `<|start|>` to the terminator, both included.
        body: the content: from behind `<|message|>` up to the terminator, excluded.
    """

    message: Message
    terminator: Terminator | None
    span: Span
    body: Span


@dataclass(frozen=True)
class ParsedText:
    """A text and its messages, whose spans follow one another without a gap.

    Attributes:
        next_role: whose turn is announced at the end of the text (`ending="next_role"`); else None.
        utf8: the text in UTF-8, made once.
    """

    text: str
    messages: tuple[ParsedMessage, ...]
    next_role: Role | None
    utf8: bytes = field(repr=False)

    @cached_property
    def conversation(self) -> list[Message]:
        """The messages alone: what `render_harmony` takes."""
        return [parsed.message for parsed in self.messages]

    @cached_property
    def calls(self) -> list[Message]:
        """The calls among them."""
        return [message for message in self.conversation if message.recipient is not None and message.is_call]

    @property
    def template(self) -> Template:
        """`plain/1` if that gives this text; `harmony/1` gives the same of messages without channels."""
        is_plain = all(parsed.message.is_plain and parsed.terminator is Terminator.END for parsed in self.messages)
        return Template.PLAIN_1 if is_plain else Template.HARMONY_1


def parse_harmony(
    text: str, *, opening: Role | None = None, ending: Literal["closed", "next_role", "open"] = "closed"
) -> ParsedText:
    """The messages of a text; none of an empty one.

    Args:
        opening: the role that was announced before the text, whose first message then lacks `<|start|>` and author: so
            begins what a model writes after `<|start|>assistant`. None: the text begins with a message.
        ending: `closed`: the last message has its terminator. `next_role`: then follows `<|start|>` and a role, as in
            a prompt. `open`: the last message has no terminator; its body is the rest of the text.
    Raises:
        Refusal: with the position of the first fault.
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
        if (next_role := SPEAKERS.get(role)) is None:
            raise Refusal(Reason.NO_NEXT_ROLE, f"the text does not end with {START} and a role", len(text))
    messages = tuple(_messages(text, stop, opening, ending == "open"))
    if ending == "open" and (not messages or messages[-1].terminator is not None):
        raise Refusal(Reason.TEXT_OUTSIDE_MESSAGES, "the last message is closed", stop)
    return ParsedText(text, messages, next_role, utf8)


def _messages(text: str, stop: int, opening: Role | None, is_open: bool) -> Iterator[ParsedMessage]:
    start = 0
    while start < stop or opening is not None:
        end = text.find(MESSAGE, start, min(stop, start + _HEADER_CHARACTERS))
        header = _header(text[start : end + len(MESSAGE)], opening) if end >= 0 else None
        if header is None:
            raise _header_refusal(text, start, stop, opening)
        body = end + len(MESSAGE)
        found = first_special(text, body, stop)
        if found is None and not is_open:
            raise Refusal(Reason.MESSAGE_NOT_CLOSED, "the text ends in a message", start)
        content = Span(body, found.start() if found else stop)
        message = Message(header.role, text[content.start : content.stop], *header[2:])
        terminator = _terminator(found, message) if found else None
        span = Span(start, found.end() if found else stop)
        yield ParsedMessage(message, terminator, span, content)
        start, opening = span.stop, None


@lru_cache(maxsize=4096)  # a dataset has few
def _header(header: str, opening: Role | None) -> Message | None:
    """What a header says, `<|message|>` included, as a message without content; None if it is refused."""
    match = (_HEADER if opening is None else _CONTINUED_HEADER).fullmatch(header)
    if match is None:
        return None
    author, before, channel, after, constrained, content_type = match.groups()
    recipient = before or after
    speaker = (opening, None) if opening is not None else read_author(author, recipient is not None)
    if speaker is None or recipient == "all" or (before and after):
        return None
    return Message(speaker[0], "", speaker[1], recipient, channel, constrained or content_type)


def _terminator(found: re.Match[str], message: Message) -> Terminator:
    terminator = _TERMINATORS.get(found.group())
    if terminator is None:
        raise Refusal(Reason.CONTROL_TOKENS_IN_CONTENT, found.group(), found.start())
    if (terminator is Terminator.CALL and not message.is_call) or (
        terminator is Terminator.RETURN and message.role is not Role.ASSISTANT
    ):
        raise Refusal(Reason.WRONG_TERMINATOR, f"{terminator} after a message that is no call or answer", found.start())
    return terminator


def _header_refusal(text: str, start: int, stop: int, opening: Role | None) -> Refusal:
    """Why there is no header at a position, or none that is read."""
    match = (_HEADER if opening is None else _CONTINUED_HEADER).match(text, start, stop)
    if match is not None:
        author, before, _, after, *_ = match.groups()
        if before and after:
            return Refusal(Reason.TWO_RECIPIENTS, f"{before} and {after}", start)
        is_known = opening is not None or read_author(author, bool(before or after)) is not None
        return Refusal(Reason.MALFORMED_HEADER if is_known else Reason.UNKNOWN_ROLE, match.group()[:80], start)
    if opening is None and not text.startswith(START, start, stop):
        return Refusal(Reason.TEXT_OUTSIDE_MESSAGES, repr(text[start : min(start + 40, stop)]), start)
    begin = start if opening is not None else start + len(START)
    return Refusal(Reason.MALFORMED_HEADER, repr(text[begin : min(begin + 80, stop)]), start)


@dataclass(frozen=True)
class QualityFlags:
    """Claims about a text; all but the first are false of one that is no Harmony.

    Attributes:
        valid_harmony: it has messages, each closed, and nothing else.
        reason: why it is not valid; None if it is, or is empty.
        completion_nonempty: its last message is the assistant's, and holds more than blanks.
        has_user: there is a user message.
        has_analysis: there is an assistant message on the analysis channel.
        has_calls: the assistant calls a tool.
        calls_answered: there are as many messages of tools as calls; also true of neither.
    """

    valid_harmony: bool
    reason: StrEnum | None
    completion_nonempty: bool
    has_user: bool
    has_analysis: bool
    has_calls: bool
    calls_answered: bool


def basic_quality_flags_from_text(text: str) -> QualityFlags:
    """The flags of a text, of either template."""
    messages, reason = list[Message](), None
    try:
        messages = parse_harmony(text).conversation
    except Refusal as refusal:
        reason = refusal.reason
    calls = sum(message.is_call for message in messages)
    spoken = [message for message in messages if message.role is Role.ASSISTANT]
    return QualityFlags(
        valid_harmony=bool(messages),
        reason=reason,
        completion_nonempty=any(one.role is Role.ASSISTANT and one.content.strip() for one in messages[-1:]),
        has_user=any(message.role is Role.USER for message in messages),
        has_analysis=any(message.channel == "analysis" for message in spoken),
        has_calls=calls > 0,
        calls_answered=bool(messages) and sum(message.role is Role.TOOL for message in messages) == calls,
    )


def sha1_text_id(text: str) -> str:
    """Hex sha1 of its UTF-8, 40 characters.

    Raises:
        UnicodeEncodeError: it holds a lone surrogate; no UTF-8 has it.
    """
    return hashlib.sha1(text.encode("utf-8"), usedforsecurity=False).hexdigest()
