"""Messages → text."""

from collections.abc import Sequence
from typing import NamedTuple

from pipeline_assets.corpus.harmony.message import (
    MESSAGE,
    START,
    Analysis,
    Ending,
    Message,
    Reason,
    Refusal,
    Role,
    Template,
    first_special,
    header,
)
from pipeline_assets.corpus.harmony.parse import ParsedMessage, ParsedText, Span, Terminator


class Rendering(NamedTuple):
    """A text with its messages where they are, as `parse_harmony` reads it, and how many of the messages on the
    analysis channel are in it.
    """

    parsed: ParsedText
    analysis_given: int
    analysis_rendered: int

    @property
    def text(self) -> str:
        """The text."""
        return self.parsed.text


def render_harmony(messages: Sequence[Message], *, template: Template, analysis: Analysis, ending: Ending) -> Rendering:
    """The text of a conversation; of no messages it is empty, or the next turn's beginning.

    In `harmony/1` it is what openai-harmony renders of the same messages, for training, conversation or completion.

    Raises:
        Refusal: content with control tokens or a lone surrogate, a header that could not be read back, or a message
            that the template has no form for. It has the message's number.
    """
    kept = _kept(messages, analysis)
    parts: list[str] = []
    utf8: list[bytes] = []
    parsed: list[ParsedMessage] = []
    place = 0
    for number in kept:
        message = messages[number]
        try:
            if template is Template.PLAIN_1 and not message.is_plain:
                raise Refusal(Reason.NOT_IN_TEMPLATE, f"{template} has no recipient, channel or content type")
            content = checked_content(message.content)
            opening = header(message.role, message.name, message.recipient, message.channel, message.content_type)
        except Refusal as refusal:
            raise Refusal(refusal.reason, refusal.detail, refusal.position, number) from None
        terminator = Terminator.CALL if message.is_call else Terminator.END
        if ending is Ending.TRAINING and number == kept[-1] and _is_final(message):
            terminator = Terminator.RETURN
        before = f"{START}{opening}{MESSAGE}"
        start = place + len(before)
        stop = start + len(message.content)
        parts += (before, message.content, terminator)
        utf8 += (before.encode(), content, terminator.encode())
        body, span = Span(start, stop), Span(place, stop + len(terminator))
        parsed.append(ParsedMessage(message, terminator, span, body))
        place = span.stop
    if ending is Ending.COMPLETION:
        parts += (START, Role.ASSISTANT)
        utf8 += (START.encode(), Role.ASSISTANT.encode())
    next_role = Role.ASSISTANT if ending is Ending.COMPLETION else None
    given = [message.channel for message in messages].count("analysis")
    whole = ParsedText("".join(parts), tuple(parsed), next_role, b"".join(utf8))
    return Rendering(whole, given, given - (len(messages) - len(kept)))


def checked_content(content: str) -> bytes:
    """The content in UTF-8.

    Raises:
        Refusal: it holds control tokens, which can't be escaped, or a lone surrogate. It has the first one's position.
    """
    if found := first_special(content, 0, len(content)):
        raise Refusal(Reason.CONTROL_TOKENS_IN_CONTENT, found.group(), found.start())
    try:
        return content.encode("utf-8")
    except UnicodeEncodeError as error:
        raise Refusal(Reason.LONE_SURROGATE, f"U+{ord(content[error.start]):04X}", error.start) from None


def _kept(messages: Sequence[Message], analysis: Analysis) -> list[int]:
    """The numbers of the messages that are rendered."""
    dropped_before = 0 if analysis is Analysis.KEEP else len(messages)
    if analysis is Analysis.AUTO_DROP:
        last = next((message for message in reversed(messages) if message.role is Role.ASSISTANT), None)
        finals = (number for number, message in enumerate(messages) if message.channel == "final")
        dropped_before = next(finals, 0) if last is not None and _is_final(last) else 0
    return [
        number for number, message in enumerate(messages) if number >= dropped_before or message.channel != "analysis"
    ]


def _is_final(message: Message) -> bool:
    return message.role is Role.ASSISTANT and message.channel == "final"
