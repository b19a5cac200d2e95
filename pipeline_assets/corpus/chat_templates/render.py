"""Rendering of conversations by a chat template, with a proof of each place.

A conversation is rendered twice: as it is, and with a mark in place of each content. Both texts must be equal, except
that each mark is exchanged for the content as the template writes it: without blanks at its ends, or as JSON. A missing
mark is a message that the template drops, which is allowed for reasoning alone.
"""

import itertools
import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import jinja2

from pipeline_assets.corpus.chat_templates.marked_text import ChatReason, locate_bodies
from pipeline_assets.corpus.chat_templates.template import ChatTemplate
from pipeline_assets.corpus.harmony.chats import Chat, instructions, to_chats
from pipeline_assets.corpus.harmony.encode import HarmonyTokens, LossMode, loss_messages
from pipeline_assets.corpus.harmony.message import JsonValue, Message, Reason, Refusal, Role, render_header
from pipeline_assets.corpus.harmony.parse import ParsedMessage, ParsedText, Span
from pipeline_assets.spine.errors import one_line

_MARK = re.compile(r"Zq(\d+)Zq")
# Marks of a call's arguments: two names with values, written as a JSON object or in markup of their own.
_JSON = re.compile(r'\{"Zq(\d+)aZq"(:\s*)"Zq\1bZq"(,\s*)"Zq\1cZq":\s*"Zq\1dZq"\}')
_ITEMS = re.compile(r"Zq(\d+)aZq(.*?)Zq\1bZq(.*?)Zq\1cZq.*?Zq\1dZq", re.DOTALL)


FindLoss = Callable[[ParsedText, Sequence[int]], LossMode]


def render_chat(
    messages: Sequence[Message], tools: JsonValue, template: ChatTemplate, find_loss: FindLoss
) -> tuple[ParsedText, HarmonyTokens, list[int]]:
    """Render a conversation, and prove its loss mask.

    `find_loss` takes a text and the numbers in `messages` of its messages. A template that cannot write several calls
    at once gets them one by one, each before its reply.

    Returns:
        The text with its messages, its tokens, and the numbers of the messages that count in the loss.

    Raises:
        Refusal: A message has a control token, the template fails, or the mask cannot be proved.
    """
    plain = [
        Message(Role.SYSTEM, instructions(message.content, tools is not None))
        if message.role is Role.DEVELOPER
        else message
        for message in messages
    ]
    _check_controls(plain, tools, template)
    forms = [[number for number, message in enumerate(plain) if message.role is not Role.SYSTEM or message.content]]
    if any(message.is_call for message in plain):
        forms.append(_one_call_at_a_time(forms[0], plain))
    failure: Refusal | None = None
    for marks_blanks, (number, form) in itertools.product((True, False), enumerate(forms)):
        try:
            parsed, order = _locate([plain[place] for place in form], tools, template, number > 0, marks_blanks)
            counting = loss_messages(parsed, find_loss(parsed, [form[place] for place in order]))
            tokens, bodies = locate_bodies(parsed, counting, template.tokenizer, moves_blanks=True)
            fitted = [one._replace(body=bodies.get(place, one.body)) for place, one in enumerate(parsed.messages)]
            return ParsedText(parsed.text, tuple(fitted), None, parsed.utf8), tokens, counting
        except jinja2.TemplateError as error:
            failure = failure or Refusal(ChatReason.TEMPLATE_FAILED, one_line(error))
        except Refusal as refusal:
            failure = failure or refusal
    assert failure is not None
    raise failure


def _check_controls(messages: Sequence[Message], tools: JsonValue, template: ChatTemplate) -> None:
    for number, message in enumerate(messages):
        render_header(message.role, *message[2:])  # refuses odd names
        for text in (message.content, message.name or "", message.recipient or ""):
            if token := template.controls.search(text):
                raise Refusal(Reason.CONTROL_TOKENS_IN_CONTENT, token.group(), token.start(), number)
    if tools is not None and (token := template.controls.search(json.dumps(tools, ensure_ascii=False))):
        raise Refusal(Reason.CONTROL_TOKENS_IN_CONTENT, f"{token.group()} in the tools")


def _one_call_at_a_time(numbers: Sequence[int], messages: Sequence[Message]) -> list[int]:
    """Move the reply of each call's tool behind the call."""
    ordered, rest = list[int](), list(numbers)
    while rest:
        ordered.append(rest.pop(0))
        call = messages[ordered[-1]]
        if call.is_call:
            answers = itertools.takewhile(lambda n: messages[n].is_call or messages[n].role is Role.TOOL, rest)
            replies = [place for place, number in enumerate(answers) if messages[number].name == call.recipient]
            ordered += [rest.pop(place) for place in replies[:1]]
    return ordered


def _locate(
    messages: Sequence[Message], tools: JsonValue, template: ChatTemplate, is_apart: bool, marks_blanks: bool
) -> tuple[ParsedText, list[int]]:
    """Render a conversation, and find its messages in the text, in their order there."""
    values = [_arguments(message.content) if message.is_call else message.content for message in messages]
    marks = [_marked(number, value, marks_blanks) for number, value in enumerate(values)]
    text = template.render(_chats(messages, values, is_apart), tools)
    try:
        utf8 = text.encode()
    except UnicodeEncodeError as error:
        raise Refusal(Reason.LONE_SURROGATE, f"U+{ord(text[error.start]):04X}", error.start) from None
    spans, rewritten = _align(text, template.render(_chats(messages, marks, is_apart), tools), values)
    order = sorted(spans, key=spans.__getitem__)
    for number, message in enumerate(messages):
        if number in spans or (message.channel == "analysis" and message.role is Role.ASSISTANT):
            continue
        if marks[number] != values[number]:
            raise Refusal(ChatReason.MASK_UNPROVED, "the template drops the text", message=number)
        # An empty body leaves no trace: it stands after the message before it.
        order.insert(1 + max((place for place, known in enumerate(order) if known < number), default=-1), number)
    parsed, last = list[ParsedMessage](), 0
    for place, number in enumerate(order):
        message, body = messages[number], spans.get(number, Span(last, last))
        if number not in rewritten and (number in spans or not message.is_call):
            message = message._replace(content=text[body.start : body.stop])
        if message.is_call and number in spans:
            limit = next((spans[known].start for known in order[place + 1 :] if known in spans), len(text))
            body = _whole_lines(text, last, body, limit, template.controls.pattern)
        parsed.append(ParsedMessage(message, None, Span(last, body.stop), body))
        last = body.stop
    return ParsedText(text, tuple(parsed), None, utf8), order


def _whole_lines(text: str, first: int, body: Span, limit: int, controls: str) -> Span:
    """Extend a call to the start of its line, and to the next blank or control token."""
    begins = [first, *(edge.end() for edge in re.compile(f"\n|{controls}").finditer(text, first, body.start))]
    end = re.compile(rf"\s|{controls}").search(text, body.stop, limit)
    return Span(begins[-1], limit if end is None else end.start())


def _arguments(content: str) -> JsonValue:
    """Return a call's arguments, as text if they are not a JSON object."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return content
    return value if isinstance(value, dict) else content


def _marked(number: int, value: JsonValue, marks_blanks: bool) -> JsonValue:
    if not value and not (isinstance(value, dict) and marks_blanks):
        return value
    if isinstance(value, dict):
        a, b, c, d = (f"Zq{number}{part}Zq" for part in "abcd")
        return {a: b, c: d}
    return f"Zq{number}Zq" if marks_blanks or str(value).strip() else value


def _chats(messages: Sequence[Message], values: Sequence[JsonValue], is_apart: bool) -> list[Chat]:
    """Return chat messages with `values` as contents and arguments."""
    numbered = [message._replace(content=str(number)) for number, message in enumerate(messages)]
    chats, _ = to_chats(numbered, True, is_apart)
    for chat in chats:
        chat |= {key: values[int(chat[key])] for key in ("content", "thinking") if chat.get(key)}
        for call in chat.get("tool_calls", ()):
            call["function"]["arguments"] = values[int(call["function"]["arguments"])]
        chat["reasoning_content"] = chat.get("thinking")
    return [{key: value for key, value in chat.items() if value is not None} for chat in chats]


def _align(text: str, marked: str, values: Sequence[Any]) -> tuple[dict[int, Span], set[int]]:
    """Return the places of contents by number, and calls not written as JSON."""
    written, spans, position = dict[int, list[str]](), dict[int, Span](), 0
    for match in _JSON.finditer(marked):
        value, separators = values[int(match[1])], (match[3], match[2])
        written[int(match[1])] = [
            json.dumps(value, ensure_ascii=is_ascii, separators=separators) for is_ascii in (False, True)
        ]
    marked, rewritten = _JSON.sub(r"Zq\1Zq", marked), set[int]()
    for match in _ITEMS.finditer(marked):
        items, number = values[int(match[1])].items(), int(match[1])
        styles = [[(key, _write(item, style)) for key, item in items] for style in (dict | list, object)]
        written[number] = [match[3].join(f"{key}{match[2]}{item}" for key, item in style) for style in styles]
        rewritten.add(number)
    literal, *rest = _MARK.split(_ITEMS.sub(r"Zq\1Zq", marked))
    position, is_equal = len(literal), text.startswith(literal)
    for number, following in zip(map(int, rest[::2]), rest[1::2], strict=True):
        forms = written.get(number) or _written_forms(values[number])
        body = next((form for form in forms if text.startswith(form + following, position)), "")
        is_equal = is_equal and number not in spans and text.startswith(body + following, position)
        spans[number] = Span(position, position + len(body))
        position += len(body) + len(following)
    if not is_equal or position != len(text):
        raise Refusal(ChatReason.MASK_UNPROVED, "the template changes or repeats a message")
    return spans, rewritten


def _written_forms(content: str) -> list[str]:
    forms = [content, content.strip(), content.strip("\n"), content.lstrip("\n"), content.lstrip(), content.rstrip()]
    forms += [content.rstrip("\n")]
    return forms + [json.dumps(form, ensure_ascii=is_ascii)[1:-1] for form in forms[:2] for is_ascii in (False, True)]


def _write(value: JsonValue, as_json: Any) -> str:
    """Write a value of a call's arguments; text, and what is not `as_json`, as it is."""
    is_text = isinstance(value, str) or not isinstance(value, as_json)
    return str(value) if is_text else json.dumps(value, ensure_ascii=False)
