"""What can be told of a row's quality without a model: the columns `quality_…`."""

from typing import Literal, NamedTuple

from pipeline_assets.corpus.harmony.encode import HarmonyTokens
from pipeline_assets.corpus.harmony.loss_spans import LossMode, loss_messages
from pipeline_assets.corpus.harmony.parse import ParsedText
from pipeline_assets.corpus.harmony.quality_flags import QualityFlags
from pipeline_assets.corpus.nemotron.repetition import repeated_fraction
from pipeline_assets.corpus.nemotron.row_text import RowText
from pipeline_assets.corpus.nemotron.tool_check import calls_fit_tools
from pipeline_assets.corpus.nemotron.tools_catalog import DeclaredTools

Length = Literal["short", "normal", "long"]

SHORT_BELOW = 128
LONG_ABOVE = 16_384


class RowQuality(NamedTuple):
    """The columns `quality_…`, in their order.

    Attributes:
        valid_harmony: the text is one conversation and nothing else.
        completion_nonempty: see `has_completion`.
        valid_tool_schema: `calls_fit_tools`; null where it can't be told: the text is no Harmony, or it came as text
            that has calls, from a row without tools.
        is_duplicate: null; who finds duplicates sets it.
        length: by its tokens: `short` below 128, `long` above 16,384, else `normal`.
        repetition: `repeated_fraction` of its tokens.
        empty_messages: messages before the last one that hold nothing but blanks, of whatever role; whether the last
            one does is told by `completion_nonempty`.
    """

    valid_harmony: bool
    completion_nonempty: bool
    valid_tool_schema: bool | None
    is_duplicate: bool | None
    length: Length
    repetition: float
    empty_messages: int


def has_completion(parsed: ParsedText, flags: QualityFlags, loss: LossMode) -> bool:
    """Whether a text ends with words of the assistant that count in the loss: more than blanks, no call where calls
    don't count.

    Args:
        flags: `conversation_flags` of its messages.
    """
    return flags.completion_nonempty and loss_messages(parsed, loss)[-1:] == [len(parsed.messages) - 1]


def row_quality(
    text: RowText, flags: QualityFlags, encoded: HarmonyTokens, tools: DeclaredTools | None, loss: LossMode
) -> RowQuality:
    """The columns of one text.

    Args:
        flags: `conversation_flags` of its messages.
    """
    calls = [message for message in text.parsed.conversation if message.is_call]
    # Of a text that was Harmony before, the tools may be in the text alone.
    can_tell = flags.valid_harmony and not (text.came_as_text and calls and tools is None)
    return RowQuality(
        flags.valid_harmony,
        has_completion(text.parsed, flags, loss),
        calls_fit_tools(calls, tools) if can_tell else None,
        None,
        length_of(len(encoded.ids)),
        repeated_fraction(encoded.ids),
        sum(not message.content.strip() for message in text.parsed.conversation[:-1]),
    )


def length_of(tokens: int) -> Length:
    """Which of the three a text of so many tokens is."""
    if tokens < SHORT_BELOW:
        return "short"
    return "long" if tokens > LONG_ABOVE else "normal"
