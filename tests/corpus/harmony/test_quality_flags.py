"""Quality flags of a text by itself."""

import pytest

from pipeline_assets.corpus.harmony.message import Reason, Refusal
from pipeline_assets.corpus.harmony.parse import (
    QualityFlags,
    basic_quality_flags_from_text,
    parse_harmony,
    sha1_text_id,
)

USER = "<|start|>user<|message|>Q<|end|>"
CALL = "<|start|>assistant to=functions.f<|channel|>commentary <|constrain|>json<|message|>{}<|call|>"
REPLY = "<|start|>functions.f to=assistant<|channel|>commentary<|message|>1<|end|>"
THOUGHT = "<|start|>assistant<|channel|>analysis<|message|>T<|end|>"
ANSWER = "<|start|>assistant<|channel|>final<|message|>A<|return|>"


def test_complete_conversation_has_all_flags() -> None:
    flags = ("valid_harmony", "completion_nonempty", "has_user", "has_analysis", "has_calls", "calls_answered")

    assert basic_quality_flags_from_text(USER + THOUGHT + CALL + REPLY + ANSWER) == QualityFlags(
        reason=None, **dict.fromkeys(flags, True)
    )


def test_refusal_of_other_text_quotes_forty_characters() -> None:
    with pytest.raises(Refusal) as refused:
        parse_harmony("Hello " * 20)

    assert refused.value.detail == repr(("Hello " * 20)[:40])


def test_flags_of_other_text_have_a_reason() -> None:
    flags = basic_quality_flags_from_text("Hello")

    assert not flags.valid_harmony
    assert flags.reason is Reason.TEXT_OUTSIDE_MESSAGES
    assert not basic_quality_flags_from_text("").valid_harmony


@pytest.mark.parametrize(
    ("text", "is_nonempty"),
    [
        (USER, False),
        (USER + "<|start|>assistant<|message|>A<|end|>", True),
        (USER + "<|start|>assistant<|channel|>final<|message|> \n<|return|>", False),
        (USER + CALL, True),
        (USER + CALL + REPLY, False),
    ],
)
def test_completion_is_the_last_message_of_the_assistant(text: str, is_nonempty: bool) -> None:
    assert basic_quality_flags_from_text(text).completion_nonempty is is_nonempty


def test_call_without_a_reply_is_not_answered() -> None:
    assert not basic_quality_flags_from_text(USER + CALL).calls_answered
    assert not basic_quality_flags_from_text(USER + CALL + CALL + REPLY).calls_answered
    assert basic_quality_flags_from_text(USER + ANSWER).calls_answered


def test_the_id_of_a_text_is_the_sha1_of_its_utf8() -> None:
    assert sha1_text_id("") == "da39a3ee5e6b4b0d3255bfef95601890afd80709"
    assert sha1_text_id("é") == "bf15be717ac1b080b4f1c456692825891ff5073d"
