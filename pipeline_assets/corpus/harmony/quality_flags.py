"""What can be told of a conversation's quality from its text alone."""

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline_assets.corpus.harmony.message import Message, Role
from pipeline_assets.corpus.harmony.parse import parse_harmony
from pipeline_assets.corpus.harmony.refusal import Reason, Refusal


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
    reason: Reason | None
    completion_nonempty: bool
    has_user: bool
    has_analysis: bool
    has_calls: bool
    calls_answered: bool


def basic_quality_flags_from_text(text: str) -> QualityFlags:
    """The flags of a text, of either template."""
    try:
        return conversation_flags(parse_harmony(text).conversation)
    except Refusal as refusal:
        return QualityFlags(False, refusal.reason, *[False] * 5)


def conversation_flags(messages: Sequence[Message]) -> QualityFlags:
    """The flags of a text that was read already, from its messages."""
    if not messages:
        return QualityFlags(False, None, *[False] * 5)
    last = messages[-1]
    calls = sum(message.is_call for message in messages)
    spoken = [message for message in messages if message.role is Role.ASSISTANT]
    return QualityFlags(
        valid_harmony=True,
        reason=None,
        completion_nonempty=last.role is Role.ASSISTANT and bool(last.content.strip()),
        has_user=any(message.role is Role.USER for message in messages),
        has_analysis=any(message.channel == "analysis" for message in spoken),
        has_calls=calls > 0,
        calls_answered=sum(message.role is Role.TOOL for message in messages) == calls,
    )
