"""Parsing and encoding of a row's text, in Harmony or from a chat template.

The `loss_rule` of a text from a chat template is `spans/1`, then an entry `ROLE/CHANNEL=NAME@START-STOP` per message.
CHANNEL (one of Harmony's three; only for the assistant) and NAME (the called tool, or the name of another author) are
optional. The body of a message is the characters [START, STOP) of the text. If the content differs from the body, a
colon and the content follow: as a span of the text if the body contains the content, else as a JSON string without
spaces. A final `*` marks a body that counts in the loss. Example:

    spans/1 user@21-27 assistant/commentary=functions.lookup@80-119:103-118* tool=functions.lookup@150-152

The body of a call includes markup next to the arguments, such as the function's name, because a token may contain both.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import ClassVar

import numpy as np

from pipeline_assets.corpus.harmony import encode
from pipeline_assets.corpus.harmony.message import START, Message, Refusal, Role
from pipeline_assets.corpus.harmony.parse import ParsedMessage, ParsedText, Span, parse_harmony
from pipeline_assets.corpus.tokens.hf_tokenizer import HfTokenizer
from pipeline_assets.corpus.tokens.tokenizer import Tokenizer
from pipeline_assets.spine.errors import InputError

TEMPLATE_PREFIX, SPAN_RULE_VERSION = "chat/", "spans/1"
_CHANNELS = ("analysis", "commentary", "final")  # a text column of the source may have others, or none
_ENTRY = re.compile(
    rf"(system|user|assistant|tool)(?:/({'|'.join(_CHANNELS)}))?(?:=([^\s<]+))?@(\d+)-(\d+)"
    r'(?::(?:(\d+)-(\d+)|("\S*")))?(\*?)'
)


class ChatReason(StrEnum):
    """Reason code of a refused row: the template fails, or the loss mask is unproved."""

    TEMPLATE_FAILED = "template_failed"
    MASK_UNPROVED = "mask_unproved"


@dataclass(frozen=True)
class MarkedSpans(encode.AssistantTurns):
    """Loss mode of a chat-template text: its messages marked `*` count in the loss.

    The marks are in `stored_rule`, which is the row's `loss_rule`.
    """

    name: ClassVar = "marked_spans"
    stored_rule: str

    @property
    def rule(self) -> str:
        return self.stored_rule


def uses_chat_template(template: str | None) -> bool:
    """Check whether a row's column `template` names a chat template."""
    return template is not None and template.startswith(TEMPLATE_PREFIX)


def format_loss_rule(parsed: ParsedText, loss_indexes: Sequence[int]) -> str:
    """Format the `loss_rule` of a text.

    `loss_indexes` has the indexes of the messages that count in the loss.
    """
    marks = [SPAN_RULE_VERSION]
    for number, (message, _, _, body) in enumerate(parsed.messages):
        is_assistant = message.role is Role.ASSISTANT
        name = message.recipient if is_assistant else message.name
        channel = f"/{message.channel}" if is_assistant and message.channel in _CHANNELS else ""
        mark = f"{message.role}{channel}{f'={name}' if name else ''}@{body.start}-{body.stop}"
        if message.content != parsed.text[body.start : body.stop]:
            start = parsed.text.find(message.content, body.start, body.stop)
            written = json.dumps(message.content).replace(" ", "\\u0020")
            mark += f":{written}" if start < 0 else f":{start}-{start + len(message.content)}"
        marks.append(f"{mark}*" if number in loss_indexes else mark)
    return " ".join(marks)


def parse_row(
    text: str, template: str | None, loss_mode: str | None, loss_rule: str | None
) -> tuple[ParsedText, encode.LossMode]:
    """Parse a row's Harmony or chat-template text; return it with its loss mode.

    Raises:
        Refusal: The text is not valid Harmony.
        ValueError: The loss rule is unknown, or does not fit the text.
    """
    if uses_chat_template(template):
        return _parse_marked_text(text, loss_rule or "")
    mode, parsed = encode.row_loss_mode(loss_mode, loss_rule), parse_harmony(text)
    encode.loss_message_indexes(parsed, mode)  # raises if the mode does not fit the text
    return parsed, mode


def parse_text(text: str, template: str | None, loss_rule: str | None) -> ParsedText:
    """Parse a row's text like `parse_row`; for a Harmony text, `loss_rule` is ignored."""
    return _parse_marked_text(text, loss_rule or "")[0] if uses_chat_template(template) else parse_harmony(text)


def _parse_marked_text(text: str, loss_rule: str) -> tuple[ParsedText, encode.LossMode]:
    version, *marks = loss_rule.split(" ")
    if version != SPAN_RULE_VERSION or not marks:
        raise ValueError(f"loss_rule is {loss_rule!r:.80}, expected {SPAN_RULE_VERSION} and messages")
    messages, in_loss, last = list[ParsedMessage](), list[int](), 0
    for number, mark in enumerate(marks):
        match = _ENTRY.fullmatch(mark)
        role, channel, name, start, stop, first, end, content, star = match.groups() if match else ("",) * 9
        body = Span(int(start or 0), int(stop or 0))
        if not role or not last <= body.start <= body.stop <= len(text) or (star and role != Role.ASSISTANT):
            raise ValueError(f"loss_rule has {mark!r:.80}, expected a message of the text")
        content = json.loads(content) if content else text[int(first or start) : int(end or stop)]
        own, called = (None, name) if role == Role.ASSISTANT else (name, None)
        message = Message(Role(role), content, own, called, channel)
        messages.append(ParsedMessage(message, None, Span(last, body.stop), body))
        in_loss += [number] * bool(star)
        last = body.stop
    return ParsedText(text, tuple(messages), None, text.encode()), MarkedSpans(tuple(in_loss), loss_rule)


def encode_row(
    parsed: ParsedText, template: str | None, loss_mode: encode.LossMode, tokenizer: Tokenizer
) -> encode.HarmonyTokens:
    """Encode the text of a row, with `locate_bodies` if `template` is a chat template.

    Raises:
        InputError: `tokenizer` is not the tokenizer of the chat template, or lacks the control tokens of Harmony.
        Refusal: The text cannot be encoded, or a message body in the loss does not consist of whole tokens.
    """
    if not uses_chat_template(template):
        if START not in tokenizer.special_ids:
            fix = "score and select them apart from rows of a chat template"
            raise InputError("these rows need a tokenizer with Harmony's control tokens", template or "Harmony", fix)
        return encode.encode_harmony([parsed], tokenizer)[0]
    tokenizer = require_tokenizer(template, tokenizer)
    return locate_bodies(parsed, encode.loss_message_indexes(parsed, loss_mode), tokenizer)[1]


def require_tokenizer(template: str | None, tokenizer: Tokenizer | None) -> HfTokenizer:
    """Return `tokenizer`; raise InputError if it is not the chat template's tokenizer.

    A `tokenizer` of None means o200k Harmony. No chat template uses it, so None always raises InputError.
    """
    expected = str(template).rpartition(" ")[2]
    if isinstance(tokenizer, HfTokenizer) and tokenizer.sha256 == expected:
        return tokenizer
    actual = f"tokenizer.json {tokenizer.sha256}" if isinstance(tokenizer, HfTokenizer) else "o200k_harmony"
    what = f"rows of this template need the tokenizer.json {expected}, but the scoring model's tokenizer is {actual}"
    raise InputError(what, template, "score them with a model that has the template's tokenizer")


def locate_bodies(
    parsed: ParsedText, loss_indexes: Sequence[int], tokenizer: HfTokenizer, adjusts_bodies: bool = False
) -> tuple[ParsedText, encode.HarmonyTokens]:
    """Encode a text of a chat template, and find the tokens of each message body.

    `loss_indexes` has the indexes of the messages in the loss. Token bounds of other messages are approximate.

    If `adjusts_bodies`, bodies in the loss are adjusted to whole tokens: they lose leading whitespace that shares a
    token with markup, and gain adjacent whitespace that shares a token with the body.

    Raises:
        Refusal: The tokens of the text, or of a body in the loss, decode to a different text.
    """
    text, (ids, offsets) = parsed.text, tokenizer.encode_with_offsets(parsed.text)
    starts, ends = offsets.T
    bodies, messages = np.zeros((len(parsed.messages), 2), np.int64), [*parsed.messages]
    for number, (_, _, _, (start, stop)) in enumerate(parsed.messages):
        first, last = int(np.searchsorted(ends, start, "right")), int(np.searchsorted(starts, stop))
        if adjusts_bodies and first < last and start < stop:
            if text[start : ends[first]].isspace() and starts[first] < start:
                start, first = int(ends[first]), first + 1
            elif text[starts[first] : start].isspace():
                start = int(starts[first])
            if text[stop : ends[last - 1]].isspace():
                stop = int(ends[last - 1])
        stop, last = max(start, stop), max(first, last) if start < stop else first
        bodies[number] = first, last
        if number in loss_indexes:
            messages[number] = messages[number]._replace(body=Span(start, stop))
            if tokenizer.decode(ids[first:last]) != text[start:stop]:
                raise Refusal(ChatReason.MASK_UNPROVED, "tokens do not end where the body does", start, number)
    if tokenizer.decode(ids) != text:
        raise Refusal(ChatReason.MASK_UNPROVED, "the text changes when it is encoded and decoded")
    return replace(parsed, messages=tuple(messages)), encode.HarmonyTokens(ids, bodies)
