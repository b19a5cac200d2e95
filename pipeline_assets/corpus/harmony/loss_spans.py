"""Which characters of a conversation count in the loss: bodies of assistant messages, without their terminators."""

from dataclasses import dataclass

from pipeline_assets.corpus.harmony.message import Message, Role
from pipeline_assets.corpus.harmony.parse import ParsedText, Span


@dataclass(frozen=True)
class AssistantAll:
    """Every assistant body; messages on the analysis channel and calls only where asked for, a call there if both are.

    Attributes:
        analysis: with messages on the analysis channel.
        calls: with the arguments of calls.
    """

    analysis: bool
    calls: bool

    @property
    def identity(self) -> str:
        """What a manifest says; the number changes whenever any text's spans do."""
        return f"assistant_all/1 analysis={str(self.analysis).lower()} calls={str(self.calls).lower()}"


@dataclass(frozen=True)
class AssistantLast:
    """The body of the last assistant message, on whatever channel; nothing if that is a call."""

    @property
    def identity(self) -> str:
        """What a manifest says; the number changes whenever any text's spans do."""
        return "assistant_last/1"


LossMode = AssistantAll | AssistantLast


def loss_messages(parsed: ParsedText, mode: LossMode) -> list[int]:
    """The numbers of the messages whose bodies count, ascending: of `parsed.messages` and of `HarmonyTokens.bodies`."""
    spoken = [number for number, one in enumerate(parsed.messages) if one.message.role is Role.ASSISTANT]
    if isinstance(mode, AssistantLast):
        return [number for number in spoken[-1:] if not parsed.messages[number].message.is_call]
    return [number for number in spoken if _counts(parsed.messages[number].message, mode)]


def loss_spans(parsed: ParsedText, mode: LossMode) -> list[Span]:
    """The bodies that count, in characters of the text, ascending; an empty body is an empty span."""
    return [parsed.messages[number].body for number in loss_messages(parsed, mode)]


def _counts(message: Message, mode: AssistantAll) -> bool:
    return (mode.analysis or message.channel != "analysis") and (mode.calls or not message.is_call)
