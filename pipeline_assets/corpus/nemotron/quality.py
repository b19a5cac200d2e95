"""What is measured of the text of a row: the columns `quality_…` and `stats_…`; no model is asked."""

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.harmony.encode import HarmonyTokens, LossMode, loss_messages
from pipeline_assets.corpus.harmony.message import Role
from pipeline_assets.corpus.harmony.parse import ParsedText
from pipeline_assets.corpus.nemotron.conversation import RowText
from pipeline_assets.corpus.nemotron.tools import DeclaredTools, calls_fit_tools

GRAM_TOKENS = 16
# A run is hashed as a polynomial modulo 2**32. The base is odd, so that multiplying loses nothing: the golden ratio's
# bits (Knuth, TAOCP vol. 3, 6.4). Its powers 1, 2, 4, 8 join runs of that many tokens.
_POWERS = [np.uint32(pow(0x9E3779B1, 1 << step, 1 << 32)) for step in range(GRAM_TOKENS.bit_length() - 1)]


def repeated_fraction(ids: NDArray[np.int32]) -> float:
    """The fraction of a text's 16-token runs that occurred in it before, to four digits; 0 of a text without such runs.

    Reasoning that quotes its problem reaches 0.16 in the real rows; a text that loops to its end goes to 1. Runs are
    compared by 32-bit hashes: of n runs a fraction of about n / 2**33 is counted too much, 0.0001 of a million tokens.

    Args:
        ids: shape (tokens,).
    """
    runs = len(ids) - GRAM_TOKENS + 1
    if runs < 2:
        return 0.0
    hashes = ids.view(np.uint32)
    for step, power in enumerate(_POWERS):  # the hash of a run from those of its halves
        first = hashes[: -(1 << step)] * power
        first += hashes[1 << step :]
        hashes = first
    hashes.sort()
    return round(float(np.count_nonzero(hashes[1:] == hashes[:-1])) / runs, 4)


class RowStats(NamedTuple):
    """The columns `stats_…`, in their order.

    Attributes:
        char_len: characters (code points) of the text.
        approx_tokens: the same as `tokens`; existing datasets have an estimate under this name.
        tokens: o200k Harmony ids of the text, control tokens included.
        completion_tokens: of the bodies that count in the loss, without terminators.
        turns: user messages.
        tool_calls: calls by the assistant.
    """

    char_len: int
    approx_tokens: int
    tokens: int
    completion_tokens: int
    turns: int
    tool_calls: int


def row_stats(parsed: ParsedText, encoded: HarmonyTokens, loss: LossMode) -> RowStats:
    """The columns of one text; of one that is no Harmony there are no messages to count."""
    tokens = len(encoded.ids)
    bodies = encoded.bodies.tolist()
    completion = sum(bodies[number][1] - bodies[number][0] for number in loss_messages(parsed, loss))
    turns = [message.role for message in parsed.conversation].count(Role.USER)
    return RowStats(len(parsed.text), tokens, tokens, completion, turns, len(parsed.calls))


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
        is_duplicate, duplicate_of, similarity: null; who finds duplicates sets them.
        length: by its tokens: `short` below 128, `long` above 16,384, else `normal`.
        repetition: `repeated_fraction` of its tokens.
        empty_messages: messages before the last one that hold nothing but blanks, of whatever role; whether the last
            one does is told by `completion_nonempty`.
    """

    valid_harmony: bool
    completion_nonempty: bool
    valid_tool_schema: bool | None
    is_duplicate: bool | None
    duplicate_of: str | None
    similarity: float | None
    length: Length
    repetition: float
    empty_messages: int


def has_completion(parsed: ParsedText, loss: LossMode) -> bool:
    """Whether a text ends with words of the assistant that count in the loss: more than blanks, no call where calls
    don't count.
    """
    counting, last = loss_messages(parsed, loss), len(parsed.messages) - 1
    return counting[-1:] == [last] and bool(parsed.conversation[last].content.strip())


def row_quality(text: RowText, encoded: HarmonyTokens, tools: DeclaredTools | None, loss: LossMode) -> RowQuality:
    """The columns of one text."""
    is_valid, calls = bool(text.parsed.messages), text.parsed.calls
    # Of a text that was Harmony before, the tools may be in the text alone.
    can_tell = is_valid and not (text.came_as_text and calls and tools is None)
    return RowQuality(
        is_valid,
        has_completion(text.parsed, loss),
        calls_fit_tools(calls, tools) if can_tell else None,
        None,
        None,
        None,
        length_of(len(encoded.ids)),
        repeated_fraction(encoded.ids),
        sum([not message.content.strip() for message in text.parsed.conversation[:-1]]),
    )


def length_of(tokens: int) -> Length:
    """Which of the three a text of so many tokens is."""
    if tokens < SHORT_BELOW:
        return "short"
    return "long" if tokens > LONG_ABOVE else "normal"
