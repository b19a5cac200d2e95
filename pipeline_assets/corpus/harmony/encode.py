"""Messages → text → token ids, and which of them count in the loss.

Control tokens get their special ids, all else is ordinary text. Ids of o200k Harmony equal openai-harmony's of the same
rendering. What stands between two control tokens is encoded by itself; no text there can give a special id. Bodies of
assistant messages count in the loss, without their terminators.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.harmony.message import (
    MESSAGE,
    START,
    STRUCTURE,
    STRUCTURE_OR_TEXT,
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
from pipeline_assets.corpus.tokens.losses import NO_LOSSES, Losses
from pipeline_assets.corpus.tokens.tokenizer import ControlledIds, Tokenizer


def render_harmony(messages: Sequence[Message], *, analysis: Analysis, ending: Ending) -> ParsedText:
    """The text of a conversation, as `parse_harmony` reads it.

    Of no messages it is empty, or the next turn's beginning. It is what openai-harmony renders of the same messages,
    for training, conversation or completion.

    Raises:
        Refusal: content with control tokens or a lone surrogate, or a header that could not be read back. It has the
            message's number.
    """
    kept = _kept(messages, analysis)
    parts: list[str] = []
    parsed: list[ParsedMessage] = []
    place = 0
    for number in kept:
        message = messages[number]
        try:
            _check_content(message.content)
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
        body, span = Span(start, stop), Span(place, stop + len(terminator))
        parsed.append(ParsedMessage(message, terminator, span, body))
        place = span.stop
    if ending is Ending.COMPLETION:
        parts += (START, Role.ASSISTANT)
    next_role = Role.ASSISTANT if ending is Ending.COMPLETION else None
    text = "".join(parts)
    return ParsedText(text, tuple(parsed), next_role, text.encode())


RENDERERS = {Template.HARMONY_1: render_harmony}
"""How messages become text, by template. `plain/1` is read, and not rendered."""


def _check_content(content: str) -> None:
    """Refuse control tokens, which can't be escaped, and lone surrogates, at the first one's position."""
    if found := first_special(content, 0, len(content)):
        raise Refusal(Reason.CONTROL_TOKENS_IN_CONTENT, found.group(), found.start())
    if not content.isascii():
        try:
            content.encode("utf-8")
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


@dataclass(frozen=True)
class AssistantAll:
    """Every assistant body; messages on the analysis channel and calls only where asked for, a call there if both are.

    Attributes:
        analysis: with messages on the analysis channel.
        calls: with the arguments of calls.
    """

    name: ClassVar = "assistant_all"
    analysis: bool
    calls: bool

    @property
    def rule(self) -> str:
        """With its settings; the number changes whenever any text's spans do."""
        return f"assistant_all/1 analysis={str(self.analysis).lower()} calls={str(self.calls).lower()}"


@dataclass(frozen=True)
class AssistantLast:
    """The body of the last assistant message, on whatever channel; nothing if that is a call."""

    name: ClassVar = "assistant_last"

    @property
    def rule(self) -> str:
        """With its settings; the number changes whenever any text's spans do."""
        return "assistant_last/1"


LossMode = AssistantAll | AssistantLast
_ALL = [AssistantAll(*flags) for flags in itertools.product((True, False), repeat=2)]
_MODES: list[LossMode] = [AssistantLast(), *_ALL]
LOSS_MODES = {mode.rule: mode for mode in _MODES}
"""All modes by their rules."""
_BARE: dict[str, LossMode] = {AssistantAll.name: _ALL[0], AssistantLast.name: AssistantLast()}


def row_loss_mode(loss_mode: str | None, loss_rule: str | None) -> LossMode:
    """Which bodies of a row count: by its rule, or where it has none by the bare word of its mode.

    Args:
        loss_mode, loss_rule: the row's columns of these names. `assistant_all` alone is with analysis and calls.
    Raises:
        ValueError: a rule that is none of `LOSS_MODES`, even beside a mode: it may count other bodies than the mode
            does. Without a rule, a mode that is neither `assistant_all` nor `assistant_last`; None is neither.
    """
    column, asked, known = "loss_rule", loss_rule, LOSS_MODES
    if loss_rule is None:
        column, asked, known = "loss_mode", loss_mode, _BARE
    if asked not in known:
        raise ValueError(f"{column} is {asked!r}, none of: {', '.join(known)}")
    return known[asked]


def loss_messages(parsed: ParsedText, mode: LossMode) -> list[int]:
    """The numbers of the messages whose bodies count, ascending: of `parsed.messages` and of `HarmonyTokens.bodies`."""
    messages, assistant = parsed.conversation, Role.ASSISTANT
    spoken = [number for number, message in enumerate(messages) if message.role is assistant]
    if isinstance(mode, AssistantLast):
        return [number for number in spoken[-1:] if not messages[number].is_call]
    return [
        number
        for number in spoken
        if (mode.analysis or messages[number].channel != "analysis") and (mode.calls or not messages[number].is_call)
    ]


def loss_spans(parsed: ParsedText, mode: LossMode) -> list[Span]:
    """The bodies that count, in characters of the text, ascending; an empty body is an empty span."""
    return [parsed.messages[number].body for number in loss_messages(parsed, mode)]


@dataclass(frozen=True)
class HarmonyTokens:
    """A text's ids, shape (tokens,), and its messages' bodies, shape (messages, 2): first token, and the terminator's.

    A body without content has both the same. `losses` are what the tokenizer loses of the text.
    """

    ids: NDArray[np.int32]
    bodies: NDArray[np.int64]
    losses: Losses = NO_LOSSES


def encode_harmony(texts: Sequence[ParsedText], tokenizer: Tokenizer) -> list[HarmonyTokens]:
    """The ids of each text.

    Args:
        tokenizer: each of `STRUCTURE` is a token of its own there.
    Raises:
        Refusal: a piece of a text that the tokenizer fails on; `message` is then the number of the text.
    """
    for number, parsed in enumerate(texts):
        text = parsed.text
        if not tokenizer.can_encode(text) and not all(map(tokenizer.can_encode, STRUCTURE_OR_TEXT.split(text))):
            raise Refusal(Reason.NOT_ENCODABLE, "blanks that the tokenizer fails on", message=number)
    encoded = tokenizer.encode_controlled([parsed.utf8 for parsed in texts], STRUCTURE)
    opens = tokenizer.special_ids[MESSAGE]
    return [HarmonyTokens(one.ids, _bodies(one, opens), one.losses) for one in encoded]


def _bodies(encoded: ControlledIds, opens: int) -> NDArray[np.int64]:
    """What follows each `<|message|>` up to the next control token, which no body holds."""
    ids, controls, _ = encoded
    opened = np.flatnonzero(ids[controls] == opens)
    return np.stack([controls[opened] + 1, np.append(controls, len(ids))[opened + 1]], axis=1)
