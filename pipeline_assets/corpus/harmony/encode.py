"""Rendering of messages as text, token ids and loss spans.

Control tokens get their special ids. The text between two control tokens is encoded separately as ordinary text, so
that no text can produce a special id. With the tokenizer o200k Harmony, the ids equal those of openai-harmony. A loss
mode selects the bodies of assistant messages that count in the loss; terminators never count.
"""

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.harmony.message import (
    CONTROL_TOKEN_PATTERN,
    CONTROL_TOKENS,
    MESSAGE,
    START,
    AnalysisMode,
    Ending,
    Message,
    Reason,
    Refusal,
    Role,
    find_special,
    render_header,
)
from pipeline_assets.corpus.harmony.parse import ParsedMessage, ParsedText, Span, Terminator
from pipeline_assets.corpus.tokens.losses import NO_LOSSES, Losses
from pipeline_assets.corpus.tokens.tokenizer import ControlledIds, Tokenizer


def render_harmony(messages: Sequence[Message], *, analysis: AnalysisMode, ending: Ending) -> ParsedText:
    """Render a conversation as text that `parse_harmony` can read back.

    If `analysis` drops all messages, the text is empty, or `<|start|>assistant` for the ending `completion`. The text
    equals openai-harmony's rendering of the same messages with the same ending.

    Raises:
        Refusal: A message has an invalid header, or content with special tokens or a lone surrogate. `Refusal.index`
            is its index in `messages`.
    """
    kept = rendered_indexes(messages, analysis)
    parts: list[str] = []
    parsed: list[ParsedMessage] = []
    position = 0
    for number in kept:
        message = messages[number]
        try:
            _check_content(message.content)
            header = render_header(message.role, message.name, message.recipient, message.channel, message.content_type)
        except Refusal as refusal:
            raise Refusal(refusal.reason, refusal.detail, refusal.position, number) from None
        terminator = Terminator.CALL if message.is_call else Terminator.END
        if ending is Ending.TRAINING and number == kept[-1] and _is_final(message):
            terminator = Terminator.RETURN
        prefix = f"{START}{header}{MESSAGE}"
        start = position + len(prefix)
        stop = start + len(message.content)
        parts += (prefix, message.content, terminator)
        body, span = Span(start, stop), Span(position, stop + len(terminator))
        parsed.append(ParsedMessage(message, terminator, span, body))
        position = span.stop
    next_role = Role.ASSISTANT if ending is Ending.COMPLETION else None
    text = "".join(parts if next_role is None else [*parts, START, next_role])
    return ParsedText(text, tuple(parsed), next_role, text.encode())


def _check_content(content: str) -> None:
    """Raise `Refusal` if the content has a special token or a lone surrogate."""
    if token := find_special(content, 0, len(content)):
        raise Refusal(Reason.CONTROL_TOKENS_IN_CONTENT, token.group(), token.start())
    if not content.isascii():
        try:
            content.encode("utf-8")
        except UnicodeEncodeError as error:
            raise Refusal(Reason.LONE_SURROGATE, f"U+{ord(content[error.start]):04X}", error.start) from None


def rendered_indexes(messages: Sequence[Message], analysis: AnalysisMode) -> list[int]:
    """Return the indexes of the messages that `render_harmony` renders, ascending."""
    dropped_before = 0 if analysis is AnalysisMode.KEEP else len(messages)  # analysis before this index is dropped
    if analysis is AnalysisMode.AUTO_DROP:
        last = next((message for message in reversed(messages) if message.role is Role.ASSISTANT), None)
        finals = (number for number, message in enumerate(messages) if message.channel == "final")
        dropped_before = next(finals, 0) if last is not None and _is_final(last) else 0
    return [
        number for number, message in enumerate(messages) if number >= dropped_before or message.channel != "analysis"
    ]


def _is_final(message: Message) -> bool:
    return message.role is Role.ASSISTANT and message.channel == "final"


@dataclass(frozen=True)
class AssistantAll:
    """Loss mode that selects the bodies of all assistant messages, with two options.

    Bodies on the analysis channel are selected only if `has_analysis` is true, and arguments of calls only if
    `has_calls` is true. A call on the analysis channel is selected only if both options are true.
    """

    name: ClassVar = "assistant_all"
    has_analysis: bool
    has_calls: bool

    @property
    def rule(self) -> str:
        """Name, version and settings of the loss mode, as stored with rows.

        The version after the slash must increase when the loss spans of any text change.
        """
        return f"assistant_all/1 analysis={self.has_analysis} calls={self.has_calls}".lower()


@dataclass(frozen=True)
class AssistantLast:
    """Loss mode that selects the body of the last assistant message.

    If this message is a call, no body is selected.
    """

    name: ClassVar = "assistant_last"

    @property
    def rule(self) -> str:
        """Name and version of the loss mode, as stored with rows; see `AssistantAll.rule`."""
        return "assistant_last/1"


@dataclass(frozen=True)
class AssistantTurns:
    """Loss mode that selects the bodies of chosen assistant messages."""

    name: ClassVar = "assistant_turns"
    rule_prefix: ClassVar = "assistant_turns/1 messages="
    message_indexes: tuple[int, ...]  # of the chosen messages in the text, ascending; may be empty

    @property
    def rule(self) -> str:
        """Name, version and chosen indexes of the loss mode; see `AssistantAll.rule`."""
        return f"{self.rule_prefix}{','.join(map(str, self.message_indexes))}"

    @classmethod
    def from_rule(cls, rule: str) -> "AssistantTurns":
        """Create a loss mode from its `rule`; raise ValueError for an invalid rule."""
        numbers = re.findall(r"\d{1,9}", rule.removeprefix(cls.rule_prefix), re.ASCII)
        mode = cls(tuple(sorted(set(map(int, numbers)))))
        if mode.rule != rule:
            raise ValueError(f"loss_rule is {rule!r}, expected ascending numbers, such as `{cls.rule_prefix}3,5`")
        return mode


LossMode = AssistantAll | AssistantLast | AssistantTurns
_ASSISTANT_ALL_MODES = [AssistantAll(*flags) for flags in itertools.product((True, False), repeat=2)]
_MODES: list[LossMode] = [AssistantLast(), *_ASSISTANT_ALL_MODES]
LOSS_MODES = {mode.rule: mode for mode in _MODES}
_DEFAULT_MODES: dict[str, LossMode] = {AssistantAll.name: _ASSISTANT_ALL_MODES[0], AssistantLast.name: AssistantLast()}


def row_loss_mode(loss_mode: str | None, loss_rule: str | None) -> LossMode:
    """Return a row's loss mode from its columns `loss_mode` and `loss_rule`.

    If `loss_rule` is None, `loss_mode` is used, and `assistant_all` includes analysis and calls.

    Raises:
        ValueError: `loss_rule` is set, but neither in `LOSS_MODES` nor an `AssistantTurns` rule; or `loss_rule` is
            None, and `loss_mode` is unknown.
    """
    if loss_rule is not None and loss_rule.startswith(AssistantTurns.rule_prefix):
        return AssistantTurns.from_rule(loss_rule)
    column, stored, known = "loss_rule", loss_rule, LOSS_MODES
    if loss_rule is None:
        column, stored, known = "loss_mode", loss_mode, _DEFAULT_MODES
    if stored not in known:
        raise ValueError(f"{column} is {stored!r}, none of: {', '.join(known)}")
    return known[stored]


def loss_message_indexes(parsed: ParsedText, loss_mode: LossMode) -> list[int]:
    """Return the indexes of the messages whose bodies count in the loss, ascending.

    Raises:
        ValueError: An index in `AssistantTurns` is not the index of an assistant message of the text.
    """
    messages = parsed.conversation
    assistant = [number for number, message in enumerate(messages) if message.role is Role.ASSISTANT]
    if isinstance(loss_mode, AssistantTurns):
        if unknown := sorted({*loss_mode.message_indexes}.difference(assistant)):
            what = f"{loss_mode.rule!r} names message {unknown[0]}"
            raise ValueError(f"{what}, which is not an assistant message of the text")
        return [*loss_mode.message_indexes]
    if isinstance(loss_mode, AssistantLast):
        return [number for number in assistant[-1:] if not messages[number].is_call]
    return [
        number
        for number in assistant
        if (loss_mode.has_analysis or messages[number].channel != "analysis")
        and (loss_mode.has_calls or not messages[number].is_call)
    ]


def loss_spans(parsed: ParsedText, loss_mode: LossMode) -> list[Span]:
    """Return the character spans of the bodies that count in the loss, ascending."""
    return [parsed.messages[number].body for number in loss_message_indexes(parsed, loss_mode)]


@dataclass(frozen=True)
class HarmonyTokens:
    """Token ids of a text, with the positions of its message bodies.

    `bodies` has the start (inclusive) and stop (exclusive) of each message's body in `ids`. For an empty body, start
    equals stop. In Harmony, the token at the stop is the terminator, if the message has one.
    """

    ids: NDArray[np.int32]  # shape (tokens,)
    bodies: NDArray[np.int64]  # shape (messages, 2)
    losses: Losses = NO_LOSSES  # counts of the text's tokens, unknown tokens, characters and lost characters


def encode_harmony(texts: Sequence[ParsedText], tokenizer: Tokenizer) -> list[HarmonyTokens]:
    """Encode texts in order, with special ids for `CONTROL_TOKENS`.

    Raise Refusal if the tokenizer cannot encode a text; `Refusal.text_index` is its index.
    """
    for number, parsed in enumerate(texts):
        text = parsed.text
        if not tokenizer.can_encode(text) and not all(map(tokenizer.can_encode, CONTROL_TOKEN_PATTERN.split(text))):
            raise Refusal(Reason.NOT_ENCODABLE, "blanks that the tokenizer fails on", text_index=number)
    encoded = tokenizer.encode_controlled([parsed.utf8 for parsed in texts], CONTROL_TOKENS)
    message_token_id = tokenizer.special_ids[MESSAGE]
    return [HarmonyTokens(tokens.ids, _find_bodies(tokens, message_token_id), tokens.losses) for tokens in encoded]


def _find_bodies(encoded: ControlledIds, message_token_id: int) -> NDArray[np.int64]:
    """Return `HarmonyTokens.bodies`; `message_token_id` is the id of `<|message|>`."""
    ids, controls, _ = encoded
    # `controls` has the positions of control tokens, `opened` the indexes of `<|message|>` among them. A body starts
    # after its `<|message|>` and stops at the next control token, or at the end of the text if none follows.
    opened = np.flatnonzero(ids[controls] == message_token_id)
    return np.stack([controls[opened] + 1, np.append(controls, len(ids))[opened + 1]], axis=1)
