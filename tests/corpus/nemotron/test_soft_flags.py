"""Soft flags of rows: channels, control characters, stalled calls."""

import json
from itertools import chain

import pytest
from nemotron_rows import ANSWER, FINAL, QUESTION, USER, called, normalised, reply, rows_recipe, to_row

FOUR = f"{FINAL}4<|return|>"


@pytest.mark.parametrize(("channel", "is_known"), [("analysis", True), ("commentary", True), ("thinking", False)])
def test_an_unknown_channel_is_flagged(channel: str, is_known: bool) -> None:
    text = f"{USER}<|start|>assistant<|channel|>{channel}<|message|>Count.<|end|>{FOUR}"

    assert to_row({"text": text})["quality_known_channels"] is is_known


def test_channels_of_invalid_harmony_are_null() -> None:
    assert to_row({"text": "no Harmony"})["quality_known_channels"] is None
    assert to_row({"messages": [QUESTION, ANSWER]})["quality_known_channels"] is True


CONTROLS = [chr(code) for code in (*range(32), 127) if chr(code) not in "\t\n\r"]


@pytest.mark.parametrize("control", CONTROLS, ids=ascii)
def test_every_control_character_is_counted_in_every_place(control: str) -> None:
    spoiled = f"{control}oxed"
    in_content = {"messages": [{"role": "user", "content": f"{spoiled} {spoiled}"}, ANSWER]}
    in_object = {"messages": [{"role": "user", "content": {"a": [spoiled]}}, ANSWER]}
    in_arguments = {"messages": [QUESTION, called({"word": spoiled}, json.dumps({"word": spoiled}))]}
    in_reply = {"messages": [QUESTION, called({}), reply({"found": spoiled}), ANSWER]}
    in_text = {"text": f"{USER}{FOUR}{control}"}

    rows = normalised(in_content, in_object, in_arguments, in_reply, in_text).batch.to_pylist()

    assert [row["quality_control_characters"] for row in rows] == [2, 1, 2, 1, 1]
    assert f"{spoiled} {spoiled}" in rows[0]["text"]


def test_a_control_character_in_the_name_of_a_tool_is_counted() -> None:
    assert to_row({"messages": [QUESTION, called({}, name="look\bup")]})["quality_control_characters"] == 1


@pytest.mark.parametrize(
    "content",
    [
        *("tab\tline\nend\r\n", "{\\bf x}", "[\\frac{1}{2}, \\begin]", "\x85 naïve"),
        *('{"a": "\\\\boxed"}', '{"a": "\\n\\t\\r\\u000a"}'),
    ],
)
def test_other_characters_are_not_counted(content: str) -> None:
    assert to_row({"messages": [{"role": "user", "content": content}, ANSWER]})["quality_control_characters"] == 0


def call_loop(*replies: object, arguments: tuple[object, ...] = ({"a": 1, "b": 2},), last: int = 1) -> list[object]:
    """Return a question, a call before each reply, and the last calls."""
    drawn_arguments = [arguments[number % len(arguments)] for number in range(len(replies) + last)]
    calls = list(map(called, drawn_arguments))
    pairs = zip(calls, map(reply, replies), strict=False)
    return [QUESTION, *chain.from_iterable(pairs), *calls[len(replies) :]]


SAME_KEYS = ({"a": 1, "b": 2}, '{"b":2,  "a": 1}', {"b": 2, "a": 1})


@pytest.mark.parametrize(
    ("messages", "stalled"),
    [
        (call_loop("no", "no"), 1),
        (call_loop("no", "no", arguments=SAME_KEYS), 1),
        (call_loop("no", "no", "no"), 2),
        (call_loop({"a": 1, "b": 2}, {"b": 2, "a": 1}), 1),
        (call_loop("no", "yes"), 0),
        (call_loop("no", "no", "yes", last=0), 1),
        (call_loop("yes", "no", "no"), 1),
        (call_loop("no"), 0),
        (call_loop("no", "no", last=0), 0),
        (call_loop(last=3), 0),
        (call_loop("no", "no", arguments=({"a": 1}, {"a": 2}, {"a": 3})), 0),
        (call_loop("no", "no", "no", "no", arguments=({"a": 1}, {"a": 2})), 1),
        (call_loop("no", "no", arguments=("not JSON",)), 1),
        (call_loop("no", "no", arguments=("[" * 5000,)), 1),
        ([QUESTION, called({}, {}, {}), reply("no"), reply("no"), reply("no"), ANSWER], 0),
        ([QUESTION, called({}), reply("no"), called({}), reply("no"), called({}, name="other")], 0),
    ],
)
def test_a_third_equal_call_after_two_equal_replies_is_stalled(messages: list[object], stalled: int) -> None:
    row = to_row({"messages": messages})

    assert row["quality_stalled_calls"] == stalled
    assert to_row({"text": row["text"]})["quality_stalled_calls"] == stalled


def test_replies_belong_to_calls_by_their_ids() -> None:
    first, second = {"a": 1}, {"a": 2}
    crossed = [{**reply("of second"), "tool_call_id": "call_1"}, {**reply("of first"), "tool_call_id": "call_0"}]
    straight = [{**reply("of first"), "tool_call_id": "call_0"}, {**reply("of second"), "tool_call_id": "call_1"}]
    messages = [QUESTION, called(first, second), *crossed, called(first, second), *straight, called(first)]

    assert to_row({"messages": messages})["quality_stalled_calls"] == 1


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_one_trailing_line_break_is_removed_from_an_external_text(end: str) -> None:
    row = to_row({"text": USER + FOUR + end, "uuid": "a"})

    assert row == to_row({"text": USER + FOUR, "uuid": "a"})
    assert row["quality_valid_harmony"] is True


@pytest.mark.parametrize("text", [f"{USER}{FOUR}\n\n", f"{USER}{FOUR} \n", f"{USER}{FOUR} ", f"\n{USER}{FOUR}", "\n"])
def test_other_text_outside_messages_makes_a_row_invalid(text: str) -> None:
    result = normalised({"text": text})

    assert result.batch.column("quality_valid_harmony").to_pylist() == [False]
    assert result.batch.column("text").to_pylist() == [text]
    assert result.counts["invalid_harmony/text_outside_messages"] == 1


def test_invalid_harmony_is_counted_by_reason_whether_kept_or_dropped() -> None:
    rows = [{"text": "no Harmony"}, {"text": "<|start|>user<|message|>a"}, {"text": "<|start|>user<|message|>b"}]

    for drops in (False, True):
        counts = normalised(*rows, settings=rows_recipe(drop_invalid_harmony=drops)).counts
        assert (counts["invalid_harmony/text_outside_messages"], counts["invalid_harmony/message_not_closed"]) == (1, 2)
