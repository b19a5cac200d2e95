"""Characters and tokens that count in the loss."""

import pytest
from harmony_oracle import encoder, library
from harmony_strategies import CONVERSATIONS
from hypothesis import given
from hypothesis import strategies as st

from pipeline_assets.corpus.harmony.encode import (
    LOSS_MODES,
    AssistantAll,
    AssistantLast,
    AssistantTurns,
    LossMode,
    encode_harmony,
    loss_message_indexes,
    loss_spans,
    render_harmony,
    row_loss_mode,
)
from pipeline_assets.corpus.harmony.message import AnalysisMode, Ending, Message, Role
from pipeline_assets.corpus.harmony.parse import parse_harmony

TEXT = (
    "<|start|>user<|message|>Q<|end|>"
    "<|start|>assistant<|channel|>analysis<|message|>thinks<|end|>"
    "<|start|>assistant<|channel|>commentary<|message|>says<|end|>"
    "<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>calls<|call|>"
    "<|start|>functions.f to=assistant<|channel|>commentary<|message|>tool<|end|>"
    "<|start|>assistant<|channel|>analysis to=python<|message|>code<|call|>"
    "<|start|>python to=assistant<|channel|>analysis<|message|>4<|end|>"
    "<|start|>assistant<|channel|>final<|message|>answers<|return|>"
)


def bodies(text: str, mode: LossMode) -> list[str]:
    return [text[start:stop] for start, stop in loss_spans(parse_harmony(text), mode)]


def test_assistant_all_counts_analysis_and_calls_by_setting() -> None:
    assert " ".join(bodies(TEXT, AssistantAll(has_analysis=True, has_calls=True))) == "thinks says calls code answers"
    assert bodies(TEXT, AssistantAll(has_analysis=True, has_calls=False)) == ["thinks", "says", "answers"]
    assert bodies(TEXT, AssistantAll(has_analysis=False, has_calls=True)) == ["says", "calls", "answers"]
    assert bodies(TEXT, AssistantAll(has_analysis=False, has_calls=False)) == ["says", "answers"]


def test_assistant_last_counts_the_last_assistant_message_unless_it_calls() -> None:
    assert bodies(TEXT, AssistantLast()) == ["answers"]
    assert bodies(TEXT + "<|start|>user<|message|>Thanks<|end|>", AssistantLast()) == ["answers"]
    assert bodies(TEXT[: TEXT.index("<|start|>python")], AssistantLast()) == []
    assert bodies("<|start|>user<|message|>Q<|end|>", AssistantLast()) == []


def test_assistant_turns_counts_the_messages_that_it_names() -> None:
    assert bodies(TEXT, AssistantTurns((1, 7))) == ["thinks", "answers"]
    assert bodies(TEXT, AssistantTurns(())) == []


@pytest.mark.parametrize("number", [0, 4, 8, 999_999_999])  # a user, a tool, beyond the text
def test_named_message_of_another_role_is_an_error(number: int) -> None:
    with pytest.raises(ValueError, match=f"names message {number}, which is not an assistant message of the text"):
        bodies(TEXT, AssistantTurns((number,)))


@given(st.sets(st.integers(0, 10**9 - 1)))
def test_the_rule_of_named_messages_round_trips(numbers: set[int]) -> None:
    mode = AssistantTurns(tuple(sorted(numbers)))

    assert row_loss_mode(None, mode.rule) == mode


@pytest.mark.parametrize(
    "numbers", ["3,3", "5,3", "03", "3,", ",3", "3, 5", "-3", "+3", "x", "3 ", "٣", "1" * 5000, "1_0", "3\n"]
)
def test_a_rule_with_other_than_ascending_numbers_is_refused(numbers: str) -> None:
    with pytest.raises(ValueError, match=r"expected ascending numbers, such as `assistant_turns/1 messages=3,5`"):
        row_loss_mode("assistant_turns", f"assistant_turns/1 messages={numbers}")


def test_modes_agree_on_plain_texts() -> None:
    text = "<|start|>user<|message|>Q<|end|><|start|>assistant<|message|>A<|end|>"

    assert bodies(text, AssistantLast()) == ["A"]
    assert bodies(text, AssistantAll(has_analysis=False, has_calls=False)) == ["A"]


def test_mode_has_a_name_and_a_rule() -> None:
    assert (AssistantLast.name, AssistantLast().rule) == ("assistant_last", "assistant_last/1")
    assert AssistantAll.name == "assistant_all"
    assert (AssistantTurns.name, AssistantTurns((3, 5)).rule) == ("assistant_turns", "assistant_turns/1 messages=3,5")
    assert AssistantTurns(()).rule == "assistant_turns/1 messages="
    assert AssistantAll(has_analysis=True, has_calls=False).rule == "assistant_all/1 analysis=true calls=false"


@given(CONVERSATIONS)
def test_tokens_of_a_body_decode_to_its_content(messages: list[Message]) -> None:
    text = render_harmony(messages, analysis=AnalysisMode.KEEP, ending=Ending.TRAINING).text
    parsed = parse_harmony(text)

    [tokens] = encode_harmony([parsed], encoder())

    mode = AssistantAll(has_analysis=True, has_calls=True)
    assert [
        library().decode_utf8(tokens.ids[slice(*tokens.bodies[number])].tolist())
        for number in loss_message_indexes(parsed, mode)
    ] == [message.content for message in messages if message.role is Role.ASSISTANT]


def test_row_counts_by_its_rule_or_else_by_its_mode() -> None:
    for rule, mode in LOSS_MODES.items():
        assert row_loss_mode(None, rule) == row_loss_mode(mode.name, rule) == mode
    assert row_loss_mode("assistant_all", None) == AssistantAll(has_analysis=True, has_calls=True)
    assert row_loss_mode("assistant_last", None) == AssistantLast()


@pytest.mark.parametrize(
    ("mode", "rule", "message"),
    [
        (None, None, "loss_mode is None"),
        ("assistant", None, "loss_mode is 'assistant'"),
        ("assistant_last", "assistant_last/2", "loss_rule is 'assistant_last/2'"),
        ("assistant_all", "", "loss_rule is ''"),
        ("assistant_turns", None, "loss_mode is 'assistant_turns'"),
        ("assistant_turns", "assistant_turns/2 messages=1", "loss_rule is 'assistant_turns/2 messages=1'"),
    ],
)
def test_unknown_loss_is_refused(mode: str | None, rule: str | None, message: str) -> None:
    with pytest.raises(ValueError, match=f"{message}, none of: .*assistant_last"):
        row_loss_mode(mode, rule)
