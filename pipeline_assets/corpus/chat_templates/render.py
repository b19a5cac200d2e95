"""Rendering with a chat template, with a proof of the position of each message.

A conversation is rendered twice: as it is, and with a unique mark in place of each content. Where the second text has a
mark, the first must have the content that the mark replaces, either unchanged, stripped or as JSON. All other text must
be equal. Only the marks of reasoning may be missing.
"""

import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jinja2

from pipeline_assets.corpus.chat_templates.marked_text import ChatReason, locate_bodies
from pipeline_assets.corpus.chat_templates.template import ChatTemplate
from pipeline_assets.corpus.harmony.chats import extract_instructions, to_chat_messages
from pipeline_assets.corpus.harmony.encode import HarmonyTokens, LossMode, loss_message_indexes
from pipeline_assets.corpus.harmony.message import JsonValue, Message, Reason, Refusal, Role, render_header
from pipeline_assets.corpus.harmony.parse import ParsedMessage, ParsedText, Span
from pipeline_assets.corpus.readers.nesting import limit_text_nesting
from pipeline_assets.spine.errors import one_line

# Marks of a call's arguments, which are two names with values, written as a JSON object or in markup of their own; and
# the mark of any other content.
_MARK = re.compile(
    r'\{"Zq(\d+)aZq"(:\s*)"Zq\1bZq"(,\s*)"Zq\1cZq":\s*"Zq\1dZq"\}'
    r"|Zq(\d+)aZq(.*?)Zq\4bZq(.*?)Zq\4cZq.*?Zq\4dZq|Zq(\d+)Zq",
    re.DOTALL,
)

LossModeChooser = Callable[[ParsedText, Sequence[int]], LossMode]


def render_chat(
    messages: Sequence[Message],
    tools: JsonValue,
    chat_template: ChatTemplate,
    choose_loss_mode: LossModeChooser,
    answered_calls: Sequence[int | None],
) -> tuple[ParsedText, HarmonyTokens, list[int]]:
    """Render a conversation with a chat template, and prove its loss mask.

    `choose_loss_mode(parsed, indexes)` returns the loss mode of a rendered text. The text may omit or reorder messages:
    its i-th message is `messages[indexes[i]]`. `answered_calls` has an entry for each tool reply, in order: the index
    of the answered call among all calls of `messages`, or None if the reply answers no call. If a template cannot write
    several calls in a row, each call is rendered directly before its first reply.

    Returns:
        The text with its messages; its tokens; the indexes of the text's messages that count in the loss.

    Raises:
        Refusal: A message or tool has a control token, the template fails, or the mask cannot be proved.
        InputError: The template needs too much time or memory.
    """
    plain = [
        Message(Role.SYSTEM, extract_instructions(message.content, tools is not None))
        if message.role is Role.DEVELOPER
        else message
        for message in messages
    ]
    _check_control_tokens(plain, tools, chat_template)
    orders = [[number for number, message in enumerate(plain) if message.role is not Role.SYSTEM or message.content]]
    calls = [number for number, message in enumerate(plain) if message.is_call]
    replies = (number for number, message in enumerate(plain) if message.role is Role.TOOL)
    pairs = zip(replies, answered_calls, strict=True)
    calls_by_reply = {reply: calls[call] for reply, call in pairs if call is not None}
    if calls:
        orders.append(_move_replies_behind_calls(orders[0], plain, calls_by_reply))
    failures = list[Refusal]()
    for marks_blanks, numbers in itertools.product((True, False), orders):
        try:
            places = {number: place for place, number in enumerate(numbers)}
            answers = {places[reply]: places[call] for reply, call in calls_by_reply.items()}
            ordered, is_moved = [plain[number] for number in numbers], numbers is not orders[0]
            located, order = _render_and_locate(ordered, tools, chat_template, is_moved, marks_blanks, answers)
            in_loss = loss_message_indexes(located, choose_loss_mode(located, [numbers[place] for place in order]))
            return *locate_bodies(located, in_loss, chat_template.tokenizer, adjusts_bodies=True), in_loss
        except jinja2.TemplateError as error:
            failures.append(Refusal(ChatReason.TEMPLATE_FAILED, one_line(error)))
        except Refusal as refusal:
            failures.append(refusal)
    raise failures[0]


def _check_control_tokens(messages: Sequence[Message], tools: JsonValue, chat_template: ChatTemplate) -> None:
    for number, message in enumerate(messages):
        render_header(message.role, *message[2:])  # refuses odd names
        # A template writes the decoded arguments of a call, in which `\u003c` is `<`.
        decoded = json.dumps(_decode_arguments(message.content), ensure_ascii=False) if message.is_call else ""
        for text in (message.content, message.name or "", message.recipient or "", decoded):
            if token := chat_template.control_pattern.search(text):
                raise Refusal(Reason.CONTROL_TOKENS_IN_CONTENT, token.group(), token.start(), number)
    if tools is not None and (token := chat_template.control_pattern.search(json.dumps(tools, ensure_ascii=False))):
        raise Refusal(Reason.CONTROL_TOKENS_IN_CONTENT, f"{token.group()} in the tools")


def _move_replies_behind_calls(
    indexes: Sequence[int], messages: Sequence[Message], calls_by_reply: dict[int, int]
) -> list[int]:
    """Reorder `indexes` so that the first reply to a call directly follows the call.

    All numbers are indexes in `messages`. `calls_by_reply` maps replies, in order, to the calls that they answer. A
    reply after a message that is neither a call nor a reply keeps its place.
    """
    are_others = (not messages[number].is_call and messages[number].role is not Role.TOOL for number in indexes)
    others_before = dict(zip(indexes, itertools.accumulate(are_others), strict=True))
    pairs = reversed(calls_by_reply.items())  # of several replies, the first is kept
    replies = {call: reply for reply, call in pairs if others_before[call] == others_before[reply]}
    moved, ordered = {*replies.values()}, list[int]()
    for number in indexes:
        if number not in moved:
            ordered += [number, replies[number]] if number in replies else [number]
    return ordered


def _render_and_locate(
    messages: Sequence[Message],
    tools: JsonValue,
    chat_template: ChatTemplate,
    splits_parts: bool,
    marks_blanks: bool,
    calls_by_reply: Mapping[int, int],
) -> tuple[ParsedText, list[int]]:
    """Render a conversation; return the text, and indexes of `messages` in text order."""

    def render(contents: Sequence[Any]) -> str:
        """Render the messages, with `contents` in place of their texts and arguments."""
        changed = [message._replace(content=content) for message, content in zip(messages, contents, strict=True)]
        converted, _ = to_chat_messages(changed, True, splits_parts, calls_by_reply)
        chats = [{**chat, "reasoning_content": chat.get("thinking")} for chat in converted]
        without_nulls = [{key: value for key, value in chat.items() if value is not None} for chat in chats]
        return chat_template.render(without_nulls, tools)

    values = [_decode_arguments(message.content) if message.is_call else message.content for message in messages]
    marks = [_make_mark(number, value, marks_blanks) for number, value in enumerate(values)]
    text = render(values)
    try:
        utf8 = text.encode()
    except UnicodeEncodeError as error:
        raise Refusal(Reason.LONE_SURROGATE, f"U+{ord(text[error.start]):04X}", error.start) from None
    found = _find_messages(text, render(marks), messages, values, chat_template.control_pattern.pattern)
    order = [*found]
    for number, message in enumerate(messages):
        if number in found or (message.channel == "analysis" and message.role is Role.ASSISTANT):
            continue
        if marks[number] != values[number]:
            raise Refusal(ChatReason.MASK_UNPROVED, "the template drops the text", index=number)
        # An empty body leaves no trace: it stands after the message before it.
        place = 1 + max((place for place, known in enumerate(order) if known < number), default=-1)
        empty = Span(*[found[order[place - 1]].body.stop if place else 0] * 2)
        message = message if message.is_call else message._replace(content="")
        found[number] = ParsedMessage(message, None, empty, empty)
        order.insert(place, number)
    if not order:
        raise Refusal(ChatReason.MASK_UNPROVED, "the template writes no message")
    return ParsedText(text, tuple(found[number] for number in order), None, utf8), order


def _extend_to_markup(text: str, start: int, body: Span, stop: int, control_pattern: str) -> Span:
    """Extend a call's body to the markup around it, between `start` and `stop`.

    The result starts after the last line end or control token before the body, and stops at the next whitespace or
    control token.
    """
    begins = [start, *(edge.end() for edge in re.compile(f"\n|{control_pattern}").finditer(text, start, body.start))]
    end = re.compile(rf"\s|{control_pattern}").search(text, body.stop, stop)
    return Span(begins[-1], stop if end is None else end.start())


def _decode_arguments(content: str) -> JsonValue:
    """Decode a call's arguments; return the text itself if it is not a JSON object."""
    try:
        limit_text_nesting(content)
        value = json.loads(content)
    except (ValueError, RecursionError):
        return content
    return value if isinstance(value, dict) else content


def _make_mark(index: int, value: JsonValue, marks_blanks: bool) -> JsonValue:
    """Return the mark for a message's content, or `value` itself if it gets no mark.

    Empty texts are never marked. Blank texts and empty objects are marked only if `marks_blanks`.
    """
    if isinstance(value, dict) and (value or marks_blanks):
        a, b, c, d = (f"Zq{index}{part}Zq" for part in "abcd")
        return {a: b, c: d}
    return f"Zq{index}Zq" if value and (marks_blanks or str(value).strip()) else value


def _find_messages(
    text: str, marked_text: str, messages: Sequence[Message], values: Sequence[Any], control_pattern: str
) -> dict[int, ParsedMessage]:
    """Return the messages whose marks are in `marked_text`, by index, in text order.

    Raise Refusal if a mark belongs to no message, or if the template changed or repeated a message.
    """
    found, last, matches = dict[int, ParsedMessage](), 0, [*_MARK.finditer(marked_text)]
    begins = [*(match.start() for match in matches), len(marked_text)]
    position, is_equal = begins[0], text.startswith(marked_text[: begins[0]])
    for match, begin in zip(matches, begins[1:], strict=True):
        number, following = int(match[1] or match[4] or match[7]), marked_text[match.end() : begin]
        # A mark in a tool or in the template itself is not of a message.
        if number >= len(values) or isinstance(values[number], dict) is (match[7] is not None):
            raise Refusal(ChatReason.MASK_UNPROVED, f"{match[0]!r:.80} marks no message")
        content = next(
            (form for form in _possible_forms(match, values[number]) if text.startswith(form + following, position)), ""
        )
        is_equal = is_equal and number not in found and text.startswith(content + following, position)
        body, message = Span(position, position + len(content)), messages[number]
        position = body.stop + len(following)
        if not match[4]:  # else in markup of the template, and the message keeps its JSON
            message = message._replace(content=content)
        if message.is_call:
            body = _extend_to_markup(text, last, body, position, control_pattern)
        found[number], last = ParsedMessage(message, None, Span(last, body.stop), body), body.stop
    if not is_equal or position != len(text):
        raise Refusal(ChatReason.MASK_UNPROVED, "the template changes or repeats a message")
    return found


def _possible_forms(mark: re.Match[str], value: Any) -> Iterator[str]:
    """Yield the forms in which a template may write `value` in the place of `mark`."""
    _, colon, comma, _, between, separator, _ = mark.groups()
    if comma:
        yield from (json.dumps(value, ensure_ascii=is_ascii, separators=(comma, colon)) for is_ascii in (False, True))
    elif separator is not None:
        for as_json in (dict | list, object):  # a text, or any value that is not `as_json`, is unchanged
            items = (
                (name, json.dumps(item, ensure_ascii=False))
                if isinstance(item, as_json) and not isinstance(item, str)
                else (name, str(item))
                for name, item in value.items()
            )
            yield separator.join(f"{name}{between}{item}" for name, item in items)
    else:
        yield from (value, value.strip(), value.strip("\n"), value.lstrip("\n"), value.lstrip(), value.rstrip())
        yield value.rstrip("\n")
        for form in (value, value.strip()):
            yield from (json.dumps(form, ensure_ascii=is_ascii)[1:-1] for is_ascii in (False, True))
