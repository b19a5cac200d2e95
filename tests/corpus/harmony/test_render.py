"""Rendering: text and tokens equal those of openai-harmony, and refusals."""

import pytest
from harmony_oracle import encoder, library, library_tokens
from harmony_strategies import CONVERSATIONS
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline_assets.corpus.harmony.encode import encode_harmony, render_harmony
from pipeline_assets.corpus.harmony.message import AnalysisMode, Ending, Message, Reason, Refusal, Role
from pipeline_assets.corpus.harmony.parse import parse_harmony

USER = Message(Role.USER, "And 9 / 2?")
THINKS = Message(Role.ASSISTANT, "Halve it.", channel="analysis")
CALLS = Message(Role.ASSISTANT, '{"x": 9}', None, "functions.halve", "commentary", "<|constrain|>json")
ANSWERS = Message(Role.TOOL, "4.5", "functions.halve", "assistant", "commentary")
CONCLUDES = Message(Role.ASSISTANT, "4.5.", channel="final")


def render(*messages: Message, analysis: AnalysisMode = AnalysisMode.KEEP, ending: Ending = Ending.TRAINING) -> str:
    return render_harmony(messages, analysis=analysis, ending=ending).text


@settings(max_examples=300)
@given(CONVERSATIONS, st.sampled_from([AnalysisMode.KEEP, AnalysisMode.AUTO_DROP]), st.sampled_from(Ending))
def test_text_and_tokens_equal_the_librarys(messages: list[Message], analysis: AnalysisMode, ending: Ending) -> None:
    expected = library_tokens(messages, analysis, ending)

    text = render(*messages, analysis=analysis, ending=ending)

    assert text == library().decode_utf8(expected)
    parsed = parse_harmony(text, ending="next_role" if ending is Ending.COMPLETION else "closed")
    assert encode_harmony([parsed], encoder())[0].ids.tolist() == expected
    assert library().encode(text, allowed_special="all") == expected


def test_call_and_its_answer_are_rendered() -> None:
    assert render(USER, THINKS, CALLS, ANSWERS, CONCLUDES) == (
        "<|start|>user<|message|>And 9 / 2?<|end|>"
        "<|start|>assistant<|channel|>analysis<|message|>Halve it.<|end|>"
        '<|start|>assistant to=functions.halve<|channel|>commentary <|constrain|>json<|message|>{"x": 9}<|call|>'
        "<|start|>functions.halve to=assistant<|channel|>commentary<|message|>4.5<|end|>"
        "<|start|>assistant<|channel|>final<|message|>4.5.<|return|>"
    )


@pytest.mark.parametrize(
    "token", ["<|start|>", "<|end|>", "<|return|>", "<|endoftext|>", "<|reserved_201088|>", "<|endofprompt|>"]
)
def test_content_with_control_tokens_is_refused_with_its_place(token: str) -> None:
    with pytest.raises(Refusal) as caught:
        render(USER, Message(Role.USER, f"F# pipes: x <| f, then {token}"))

    assert (caught.value.reason, caught.value.index, caught.value.position) == ("control_tokens_in_content", 1, 23)


def test_text_similar_to_control_tokens_is_content() -> None:
    for content in ("<|", "<|start|", "<|Start|>", "<| start |>", "<|startx|>", "<|reserved_9|>"):
        text = render(Message(Role.USER, content))

        assert parse_harmony(text).conversation == [Message(Role.USER, content)]


def test_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(Refusal, match=r"lone_surrogate: U\+D800 in message 0 at 1"):
        render(Message(Role.USER, "a\ud800"))


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Message(Role.TOOL, "", None), Reason.UNKNOWN_ROLE),
        (Message(Role.TOOL, "", "assistant"), Reason.UNKNOWN_ROLE),
        (Message(Role.TOOL, "", "user:functions.f"), Reason.UNKNOWN_ROLE),
        (Message(Role.TOOL, "", "asistant"), Reason.UNKNOWN_ROLE),
        (Message(Role.TOOL, "", "functions.f to=x"), Reason.INVALID_HEADER_FIELD),
        (Message(Role.USER, "", ""), Reason.INVALID_HEADER_FIELD),
        (Message(Role.TOOL, "", "functions.\udc00"), Reason.INVALID_HEADER_FIELD),
        (Message(Role.USER, "", "a" * 257), Reason.INVALID_HEADER_FIELD),
        (Message(Role.ASSISTANT, "", recipient="f<|message|>"), Reason.INVALID_HEADER_FIELD),
        (Message(Role.ASSISTANT, "", recipient="all"), Reason.INVALID_HEADER_FIELD),
        (Message(Role.ASSISTANT, "", channel="final\n"), Reason.INVALID_HEADER_FIELD),
        (Message(Role.ASSISTANT, "", content_type="to=f"), Reason.INVALID_HEADER_FIELD),
        (Message(Role.ASSISTANT, "", content_type="<|channel|>final"), Reason.INVALID_HEADER_FIELD),
    ],
)
def test_unreadable_header_is_refused(message: Message, reason: Reason) -> None:
    with pytest.raises(Refusal) as caught:
        render(message)

    assert caught.value.reason is reason
