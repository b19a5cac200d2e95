"""Text → messages, with the characters that each takes.

Read are both templates, and what models and the official vectors write besides: the recipient before or after the
channel, `<|return|>` after any assistant message, a content type without `<|constrain|>` (which openai-harmony takes
for the recipient where there is no other). Nothing is repaired: a text is read whole or refused at its first fault.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import NamedTuple

from pipeline_assets.corpus.harmony.message import (
    CALL,
    CHANNEL,
    CONSTRAIN,
    END,
    FIELD,
    MESSAGE,
    RETURN,
    START,
    Message,
    Reason,
    Refusal,
    Role,
    Template,
    first_special,
    read_author,
)

_HEADER = re.compile(
    rf"{re.escape(START)}({FIELD})(?: to=({FIELD}))?(?:{re.escape(CHANNEL)}({FIELD}))?(?: to=({FIELD}))?"
    rf"(?: ?({re.escape(CONSTRAIN)}{FIELD})| (?!to=)({FIELD}))?{re.escape(MESSAGE)}"
)


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
        span: from `<|start|>` to the terminator, both included.
        body: the content: from behind `<|message|>` up to the terminator, excluded.
    """

    message: Message
    terminator: Terminator
    span: Span
    body: Span


@dataclass(frozen=True)
class ParsedText:
    """A text and its messages, whose spans follow one another without a gap.

    Attributes:
        utf8: the text in UTF-8, made once.
    """

    text: str
    messages: tuple[ParsedMessage, ...]
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


def parse_harmony(text: str) -> ParsedText:
    """The messages of a text; none of an empty one.

    Raises:
        Refusal: with the position of the first fault.
    """
    try:
        utf8 = text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise Refusal(Reason.LONE_SURROGATE, f"U+{ord(text[error.start]):04X}", error.start) from None
    return ParsedText(text, tuple(_messages(text)), utf8)


def _messages(text: str) -> Iterator[ParsedMessage]:
    start = 0
    while start < len(text):
        end = text.find(MESSAGE, start, start + _HEADER_CHARACTERS)
        body = end + len(MESSAGE)
        header = _header(text[start:body]) if end >= 0 else None
        if header is None:
            raise _header_refusal(text, start)
        found = first_special(text, body)
        if found is None:
            raise Refusal(Reason.MESSAGE_NOT_CLOSED, "the text ends in a message", start)
        message = Message(header.role, text[body : found.start()], *header[2:])
        span = Span(start, found.end())
        yield ParsedMessage(message, _terminator(found, message), span, Span(body, found.start()))
        start = span.stop


@lru_cache(maxsize=4096)  # a dataset has few
def _header(header: str) -> Message | None:
    """What a header says, `<|message|>` included, as a message without content; None if it is refused."""
    match = _HEADER.fullmatch(header)
    if match is None:
        return None
    author, before, channel, after, constrained, content_type = match.groups()
    recipient = before or after
    speaker = read_author(author, recipient is not None)
    if speaker is None or recipient == "all" or (before and after):
        return None
    return Message(speaker[0], "", speaker[1], recipient, channel, constrained or content_type)


def _terminator(found: re.Match[str], message: Message) -> Terminator:
    """
    Raises:
        Refusal: it ends no message, or none of this kind.
    """
    terminator = _TERMINATORS.get(found.group())
    if terminator is None:
        raise Refusal(Reason.CONTROL_TOKENS_IN_CONTENT, found.group(), found.start())
    if (terminator is Terminator.CALL and not message.is_call) or (
        terminator is Terminator.RETURN and message.role is not Role.ASSISTANT
    ):
        raise Refusal(Reason.WRONG_TERMINATOR, f"{terminator} after a message that is no call or answer", found.start())
    return terminator


def _header_refusal(text: str, start: int) -> Refusal:
    """Why there is no header at a position, or none that is read."""
    match = _HEADER.match(text, start)
    if match is not None:
        author, before, _, after, *_ = match.groups()
        if before and after:
            return Refusal(Reason.TWO_RECIPIENTS, f"{before} and {after}", start)
        is_known = read_author(author, bool(before or after)) is not None
        return Refusal(Reason.MALFORMED_HEADER if is_known else Reason.UNKNOWN_ROLE, match.group()[:80], start)
    if not text.startswith(START, start):
        return Refusal(Reason.TEXT_OUTSIDE_MESSAGES, repr(text[start : start + 40]), start)
    begin = start + len(START)
    return Refusal(Reason.MALFORMED_HEADER, repr(text[begin : begin + 80]), start)
