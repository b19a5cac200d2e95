"""How large a conversation is: the columns `stats_…`."""

from typing import NamedTuple

from pipeline_assets.corpus.harmony.encode import HarmonyTokens
from pipeline_assets.corpus.harmony.loss_spans import LossMode, loss_messages
from pipeline_assets.corpus.harmony.message import Role
from pipeline_assets.corpus.harmony.parse import ParsedText


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
    messages = parsed.conversation
    turns = sum(message.role is Role.USER for message in messages)
    calls = sum(message.is_call for message in messages)
    return RowStats(len(parsed.text), tokens, tokens, completion, turns, calls)
