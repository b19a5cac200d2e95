"""Parsing: rendered text is read back with exact spans, other text is refused."""

import pickle

import pytest
from harmony_oracle import library, library_message, library_tokens
from harmony_strategies import ANY_CONTENT, CONVERSATIONS, PIECES, SPEAKERS, USUAL_CONVERSATIONS
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline_assets.corpus.harmony.encode import render_harmony
from pipeline_assets.corpus.harmony.message import AnalysisMode, Ending, Message, Refusal, Role, Template
from pipeline_assets.corpus.harmony.parse import Span, parse_harmony


@settings(max_examples=400)
@given(CONVERSATIONS, st.sampled_from(Ending))
def test_a_rendered_conversation_is_read_back_with_exact_spans(messages: list[Message], ending: Ending) -> None:
    rendering = render_harmony(messages, analysis=AnalysisMode.KEEP, ending=ending)
    text = rendering.text

    parsed = parse_harmony(text, ending="next_role" if ending is Ending.COMPLETION else "closed")

    assert parsed.conversation == messages
    assert rendering == parsed
    text = text.removesuffix("<|start|>assistant") if ending is Ending.COMPLETION else text
    assert "".join(text[entry.span.start : entry.span.stop] for entry in parsed.messages) == text
    for entry in parsed.messages:
        assert text[entry.body.start : entry.body.stop] == entry.message.content
        assert text[: entry.body.start].endswith("<|message|>")
        assert text[entry.body.stop : entry.span.stop] == entry.terminator


@given(USUAL_CONVERSATIONS)
def test_conversation_is_read_as_by_the_library(messages: list[Message]) -> None:
    tokens = library_tokens(messages)

    parsed = parse_harmony(library().decode_utf8(tokens))

    expected = library().parse_messages_from_completion_tokens(tokens)
    assert [library_message(message) for message in parsed.conversation] == expected


@given(st.lists(st.tuples(SPEAKERS, ANY_CONTENT), max_size=4))
def test_plain_conversations_are_read_back_or_refused(turns: list[tuple[Role, str]]) -> None:
    messages = [Message(role, content) for role, content in turns]
    try:
        rendering = render_harmony(messages, analysis=AnalysisMode.KEEP, ending=Ending.CONVERSATION)
    except Refusal as refusal:
        assert refusal.reason == "control_tokens_in_content"
        return

    parsed = parse_harmony(rendering.text)
    assert rendering == parsed
    assert parsed.conversation == messages
    assert parsed.template is Template.PLAIN_1


@settings(max_examples=400)
@given(st.lists(st.sampled_from([*PIECES, "<|start|>assistant", "<|channel|>final", "<|message|>"])).map("".join))
def test_a_text_is_read_whole_or_refused(text: str) -> None:
    try:
        parsed = parse_harmony(text)
    except Refusal as refusal:
        assert refusal.position is not None and 0 <= refusal.position <= len(text)
        return

    assert "".join(text[entry.span.start : entry.span.stop] for entry in parsed.messages) == text
    rendered_again = render_harmony(parsed.conversation, analysis=AnalysisMode.KEEP, ending=Ending.TRAINING)
    assert parse_harmony(rendered_again.text).conversation == parsed.conversation


@pytest.mark.parametrize(
    "header",
    [
        "assistant to=functions.f<|channel|>commentary <|constrain|>json",
        "assistant<|channel|>commentary to=functions.f <|constrain|>json",
        "assistant<|channel|>commentary to=functions.f<|constrain|>json",
    ],
)
def test_recipient_precedes_or_follows_the_channel(header: str) -> None:
    [message] = parse_harmony(f"<|start|>{header}<|message|>{{}}<|call|>").conversation

    assert message == Message(Role.ASSISTANT, "{}", None, "functions.f", "commentary", "<|constrain|>json")


def test_authors_have_a_role_and_a_name() -> None:
    def author(header: str) -> tuple[Role, str | None]:
        [message] = parse_harmony(f"<|start|>{header}<|message|><|end|>").conversation
        return message.role, message.name

    assert author("user") == (Role.USER, None)
    assert author("user:ann") == (Role.USER, "ann")
    assert author("functions.f") == (Role.TOOL, "functions.f")
    assert author("python") == (Role.TOOL, "python")
    assert author("tool") == (Role.TOOL, "tool")
    assert author("lookup to=assistant") == (Role.TOOL, "lookup")


def test_a_text_may_end_with_the_announced_role() -> None:
    text = "<|start|>user<|message|>Hi<|end|><|start|>assistant"

    parsed = parse_harmony(text, ending="next_role")

    assert parsed.conversation == [Message(Role.USER, "Hi")]
    assert parsed.next_role is Role.ASSISTANT
    with pytest.raises(Refusal, match="malformed_header: 'assistant' at 33"):
        parse_harmony(text)
    with pytest.raises(Refusal, match="no_next_role"):
        parse_harmony("<|start|>user<|message|>Hi<|end|>", ending="next_role")


def test_text_may_begin_after_the_announced_role() -> None:
    parsed = parse_harmony("<|channel|>final<|message|>Hi<|return|>", opening=Role.ASSISTANT)

    assert parsed.conversation == [Message(Role.ASSISTANT, "Hi", channel="final")]
    assert parsed.messages[0].span == Span(0, 39)
    called = parse_harmony(" to=functions.f<|channel|>commentary json<|message|>{}<|call|>", opening=Role.ASSISTANT)
    assert called.conversation == [Message(Role.ASSISTANT, "{}", None, "functions.f", "commentary", "json")]
    with pytest.raises(Refusal, match="text_outside_messages"):
        parse_harmony("<|channel|>final<|message|>Hi<|return|>")
    with pytest.raises(Refusal, match="malformed_header"):
        parse_harmony("", opening=Role.ASSISTANT)
    with pytest.raises(Refusal, match="unknown_role"):
        parse_harmony("<|message|>1<|end|>", opening=Role.TOOL)


def test_a_text_may_end_inside_a_message() -> None:
    text = "<|start|>user<|message|>Hi<|end|><|start|>assistant<|channel|>final<|message|>He"

    parsed = parse_harmony(text, ending="open")

    last = parsed.messages[-1]
    assert (last.message.content, last.terminator, last.body.stop) == ("He", None, len(text))
    with pytest.raises(Refusal, match="message_not_closed: the text ends in a message at 33"):
        parse_harmony(text)
    with pytest.raises(Refusal, match="text_outside_messages: the last message is closed at 33"):
        parse_harmony(text[:33], ending="open")


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("Hi", "text_outside_messages: 'Hi' at 0"),
        ("<|start|>user<|message|>Hi<|end|>\n", r"text_outside_messages: '\\n' at 33"),
        ("<|start|>user<|message|>a<|end|>b<|end|>", r"text_outside_messages: 'b<|end|>' at 32"),
        ("<|start|><|message|>Hi<|end|>", r"malformed_header: '<|message|>Hi<|end|>' at 0"),
        ("<|start|>user<|end|>", "malformed_header: 'user<|end|>' at 0"),
        ("<|start|>user  json<|message|>Hi<|end|>", "malformed_header"),
        ("<|start|>user:<|message|>Hi<|end|>", "unknown_role: <|start|>user:<|message|> at 0"),
        ("<|start|>asistant<|message|>Hi<|end|>", "unknown_role: <|start|>asistant<|message|> at 0"),
        ("<|start|>assistant to=all<|message|>Hi<|end|>", "malformed_header"),
        ("<|start|>assistant to=a<|channel|>final to=b<|message|>Hi<|end|>", "two_recipients: a and b at 0"),
        ("<|start|>user<|message|>Hi", "message_not_closed: the text ends in a message at 0"),
        ("<|start|>user<|message|>Hi<|start|>user<|message|>Hi<|end|>", "control_tokens_in_content: <|start|> at 26"),
        ("<|start|>user<|message|>a<|endoftext|>b<|end|>", "control_tokens_in_content: <|endoftext|> at 25"),
        ("<|start|>user<|message|>Hi<|call|>", "wrong_terminator: <|call|> .* at 26"),
        ("<|start|>user<|message|>Hi<|return|>", "wrong_terminator: <|return|> .* at 26"),
        ("<|start|>assistant<|message|>Hi<|call|>", "wrong_terminator: <|call|> .* at 31"),
        ("<|start|>user<|message|>\udc00<|end|>", r"lone_surrogate: U\+DC00 at 24"),
    ],
)
def test_malformed_text_is_refused_where_it_breaks(text: str, refusal: str) -> None:
    with pytest.raises(Refusal, match=refusal.replace("|", r"\|")):
        parse_harmony(text)


def test_refusal_can_be_pickled() -> None:
    with pytest.raises(Refusal) as caught:
        parse_harmony("Hi")

    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
