"""Which characters, and which tokens, count in the loss."""

import pytest
from harmony_oracle import encoder, library
from harmony_strategies import CONVERSATIONS
from hypothesis import given

from pipeline_assets.corpus.harmony.encode import (
    LOSS_MODES,
    AssistantAll,
    AssistantLast,
    LossMode,
    encode_harmony,
    loss_messages,
    loss_spans,
    render_harmony,
    row_loss_mode,
)
from pipeline_assets.corpus.harmony.message import Analysis, Ending, Message, Role
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


def test_assistant_all_takes_analysis_and_calls_by_setting() -> None:
    assert bodies(TEXT, AssistantAll(analysis=True, calls=True)) == ["thinks", "says", "calls", "code", "answers"]
    assert bodies(TEXT, AssistantAll(analysis=True, calls=False)) == ["thinks", "says", "answers"]
    assert bodies(TEXT, AssistantAll(analysis=False, calls=True)) == ["says", "calls", "answers"]
    assert bodies(TEXT, AssistantAll(analysis=False, calls=False)) == ["says", "answers"]


def test_assistant_last_takes_the_last_assistant_message_unless_it_calls() -> None:
    assert bodies(TEXT, AssistantLast()) == ["answers"]
    assert bodies(TEXT + "<|start|>user<|message|>Thanks<|end|>", AssistantLast()) == ["answers"]
    assert bodies(TEXT[: TEXT.index("<|start|>python")], AssistantLast()) == []
    assert bodies("<|start|>user<|message|>Q<|end|>", AssistantLast()) == []


def test_plain_texts_count_alike() -> None:
    text = "<|start|>user<|message|>Q<|end|><|start|>assistant<|message|>A<|end|>"

    assert bodies(text, AssistantLast()) == ["A"]
    assert bodies(text, AssistantAll(analysis=False, calls=False)) == ["A"]


def test_a_mode_says_what_it_is() -> None:
    assert (AssistantLast.name, AssistantLast().rule) == ("assistant_last", "assistant_last/1")
    assert AssistantAll.name == "assistant_all"
    assert AssistantAll(analysis=True, calls=False).rule == "assistant_all/1 analysis=true calls=false"


@given(CONVERSATIONS)
def test_tokens_of_a_body_decode_to_its_content(messages: list[Message]) -> None:
    text = render_harmony(messages, analysis=Analysis.KEEP, ending=Ending.TRAINING).text
    parsed = parse_harmony(text)

    [tokens] = encode_harmony([parsed], encoder())

    mode = AssistantAll(analysis=True, calls=True)
    assert [
        library().decode_utf8(tokens.ids[slice(*tokens.bodies[number])].tolist())
        for number in loss_messages(parsed, mode)
    ] == [message.content for message in messages if message.role is Role.ASSISTANT]


def test_a_row_counts_by_its_rule_and_without_one_by_its_mode() -> None:
    for rule, mode in LOSS_MODES.items():
        assert row_loss_mode(None, rule) == row_loss_mode(mode.name, rule) == mode
    assert row_loss_mode("assistant_all", None) == AssistantAll(analysis=True, calls=True)
    assert row_loss_mode("assistant_last", None) == AssistantLast()


@pytest.mark.parametrize(
    ("mode", "rule", "named"),
    [
        (None, None, "loss_mode is None"),
        ("assistant", None, "loss_mode is 'assistant'"),
        ("assistant_last", "assistant_last/2", "loss_rule is 'assistant_last/2'"),
        ("assistant_all", "", "loss_rule is ''"),
    ],
)
def test_a_loss_that_is_not_known_is_refused(mode: str | None, rule: str | None, named: str) -> None:
    with pytest.raises(ValueError, match=f"{named}, none of: .*assistant_last"):
        row_loss_mode(mode, rule)
