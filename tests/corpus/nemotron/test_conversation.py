"""Raw rows to Harmony texts, for every form of messages in the five datasets."""

import pytest
from nemotron_rows import (
    ANALYSIS,
    ANSWER,
    FINAL,
    LOOKUP,
    PROOFS,
    QUESTION,
    USER,
    called,
    dropped_by,
    normalised,
    reason_for,
    reply,
    rows_recipe,
    to_row,
    to_text,
)

from pipeline_assets.corpus.harmony.message import AnalysisMode

PROOF = {"problem": "Prove it.", "formal_statement": "theorem a : True := by sorry", "messages": []}
ANSWERED = f"{USER}{FINAL}4<|return|>"
CALL = "<|start|>assistant to=functions.lookup<|channel|>commentary <|constrain|>json<|message|>"
REPLY = "<|start|>functions.lookup to=assistant<|channel|>commentary<|message|>"


BOTH = {**called({}), "content": "Let me look.", "reasoning_content": "Look it up."}


BEFORE_CALLS = "<|start|>assistant<|channel|>commentary<|message|>Let me look.<|end|>"


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ([{**ANSWER, "content": ""}], f"{FINAL}<|return|>"),
        ([{**ANSWER, "reasoning_content": "Count."}], f"{ANALYSIS}Count.<|end|>{FINAL}4<|return|>"),
        ([called('{"word":  "sum"}'), reply("4")], f'{CALL}{{"word":  "sum"}}<|call|>{REPLY}4<|end|>'),
        ([called({"z": "é", "a": 0.0012})], f'{CALL}{{"a": 0.0012, "z": "é"}}<|call|>'),
        ([called("1"), reply({"b": [1], "a": None})], f'{CALL}1<|call|>{REPLY}{{"a": null, "b": [1]}}<|end|>'),
        ([called(None)], f"{CALL}{{}}<|call|>"),
        ([called("")], f"{CALL}{{}}<|call|>"),
        ([{**called({}), "content": None}], f"{CALL}{{}}<|call|>"),
        ([{"role": "assistant", "tool_calls": called({})["tool_calls"]}], f"{CALL}{{}}<|call|>"),
        ([BOTH], f"{ANALYSIS}Look it up.<|end|>{BEFORE_CALLS}{CALL}{{}}<|call|>"),
        ([called("1", "2"), reply("a"), reply("b")], f"{CALL}1<|call|>{CALL}2<|call|>{REPLY}a<|end|>{REPLY}b<|end|>"),
    ],
)
def test_each_form_of_messages_has_its_text(messages: list[dict[str, object]], text: str) -> None:
    assert to_text(QUESTION, *messages) == USER + text


@pytest.mark.parametrize("absent", [None, "", []])
def test_absent_null_and_empty_values_are_equal(absent: object) -> None:
    answer = {**ANSWER, "reasoning_content": absent, "tool_calls": absent, "name": absent}
    row = {"messages": [QUESTION, answer], "tools": absent, "url": absent, "metadata": absent, "license": absent}

    assert to_row(row) == to_row({"messages": [QUESTION, ANSWER]})


def test_analysis_is_dropped_by_setting_and_counted_in_and_out() -> None:
    row = {"messages": [QUESTION, {**ANSWER, "reasoning_content": "Count."}]}

    kept = normalised(row, row)
    dropped = normalised(row, row, settings=rows_recipe(analysis=AnalysisMode.DROP))

    assert (kept.counts["analysis_given"], kept.counts["analysis_rendered"]) == (2, 2)
    assert (dropped.counts["analysis_given"], dropped.counts["analysis_rendered"]) == (2, 0)
    assert dropped.batch.column("text").to_pylist() == [ANSWERED] * 2


def test_system_message_becomes_developer_instructions_unless_it_is_empty() -> None:
    text, empty = (to_text({"role": "system", "content": content}, QUESTION, ANSWER) for content in ("Be brief.", ""))

    assert text == "<|start|>developer<|message|># Instructions\n\nBe brief.<|end|>" + ANSWERED
    assert empty == ANSWERED


def test_later_system_message_keeps_its_place() -> None:
    text = to_text(QUESTION, ANSWER, {"role": "system", "content": "Be brief."}, QUESTION, ANSWER)

    assert text.split("<|start|>")[3] == "developer<|message|># Instructions\n\nBe brief.<|end|>"


def test_replies_name_their_tools_with_and_without_ids() -> None:
    calls = {"role": "assistant", "tool_calls": called({})["tool_calls"] + called({}, name="b")["tool_calls"]}
    calls["tool_calls"][1]["id"] = "call_1"
    b_reply, lookup_reply = {"role": "tool", "content": "b"}, {"role": "tool", "content": "l", "tool_call_id": "call_0"}

    text = to_text(QUESTION, calls, b_reply, lookup_reply, ANSWER)

    assert "functions.b to=assistant<|channel|>commentary<|message|>b<|end|>" in text
    assert "functions.lookup to=assistant<|channel|>commentary<|message|>l<|end|>" in text


@pytest.mark.parametrize(("result", "written"), [([], "[]"), ({}, "{}"), (0, "0"), (False, "false"), (None, "")])
def test_empty_results_of_a_tool_are_written(result: object, written: str) -> None:
    text = to_text(QUESTION, called({}), reply(result), ANSWER)

    assert f"<|channel|>commentary<|message|>{written}<|end|>" in text


@pytest.mark.parametrize("nothing", [{}, {"content": None}, {"content": None, "reasoning_content": "Count."}])
def test_an_answer_without_content_and_calls_is_malformed(nothing: dict[str, object]) -> None:
    last = {"messages": [QUESTION, {"role": "assistant", **nothing}]}
    midway = {"messages": [*last["messages"], QUESTION, ANSWER]}

    rejects = normalised(last, midway).rejects

    assert [reject.reason for reject in rejects] == ["malformed_message"] * 2
    assert [reject.detail for reject in rejects] == ["message 1, of the assistant, has no content"] * 2


def test_harmony_text_is_kept_unchanged() -> None:
    text = "<|start|>user<|message|>2 + 2?<|end|><|start|>assistant<|message|>4<|end|>"

    values = to_row({"text": text, "messages": None, "uuid": "a"})

    assert (values["text"], values["template"], values["stats_completion_tokens"]) == (text, "plain/1", 1)


def test_text_other_than_harmony_is_flagged_or_dropped() -> None:
    row = {"text": "<|start|>user<|message|>2 + 2?"}

    values = to_row(row)

    assert (values["text"], values["quality_valid_harmony"], values["template"]) == (row["text"], False, None)
    assert values["quality_valid_tool_schema"] is None
    assert values["stats_tokens"] == 8
    reason, detail = dropped_by(row, rows_recipe(drop_invalid_harmony=True))
    assert reason == "invalid_harmony" and detail.startswith("message_not_closed")


def test_a_proof_that_is_harmony_text_has_no_task() -> None:
    row = {"problem": "?", "formal_statement": "!", "text": "<|start|>user<|message|>Hi<|end|>"}

    assert to_row(row, origin=PROOFS)["meta_task"] is None


def test_a_proof_declares_its_tools_as_a_conversation_does() -> None:
    tools = {"tools": [LOOKUP]}

    proof, conversation = (str(to_row(row | tools, origin=PROOFS)["text"]) for row in (PROOF, {"messages": [QUESTION]}))

    opening = conversation.partition("<|start|>user")[0]
    assert "lookup" in opening and proof.startswith(f"{opening}<|start|>user")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [({"formal_statement": None}, "no_formal_statement"), ({"problem": ""}, "no_problem")],
)
def test_proof_with_a_missing_part_is_a_reject(changes: dict[str, object], reason: str) -> None:
    assert reason_for(PROOF | changes, origin=PROOFS) == reason


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"messages": []}, "no_messages"),
        ({"problem": "2 + 2?"}, "no_messages"),
        ({"messages": "2 + 2?"}, "wrong_type"),
        ({"messages": ["2 + 2?"]}, "malformed_message"),
        ({"messages": [{"role": "user", "content": None}, ANSWER]}, "malformed_message"),
        ({"text": {"a": 1}}, "wrong_type"),
        ({"messages": [{"role": "narrator", "content": ""}]}, "unknown_role"),
        ({"messages": [{"role": None, "content": ""}]}, "unknown_role"),
        ({"messages": [{"role": ["user"], "content": ""}]}, "unknown_role"),
        ({"messages": [{"role": "user", "content": "a<|start|>b"}]}, "control_tokens_in_content"),
        ({"messages": [{"role": "user", "content": {"a": "<|end|>"}}]}, "control_tokens_in_content"),
        ({"messages": [{"role": "user", "content": "\ud800"}]}, "lone_surrogate"),
        ({"messages": [QUESTION, ANSWER], "problem": "\ud800"}, "lone_surrogate"),
        ({"messages": [QUESTION, ANSWER], "tools": ["\ud800"]}, "lone_surrogate"),
        ({"messages": [QUESTION, called({}, name="look up")]}, "invalid_header_field"),
        ({"messages": [QUESTION, {"role": "assistant", "tool_calls": {"id": 1}}]}, "malformed_tool_call"),
        ({"messages": [QUESTION, {"role": "assistant", "tool_calls": 7}]}, "malformed_tool_call"),
        ({"messages": [QUESTION, {"role": "assistant", "tool_calls": [{"id": 1}]}]}, "malformed_tool_call"),
        ({"messages": [QUESTION, reply("4")]}, "reply_without_call"),
        ({"messages": [QUESTION, {"role": "tool", "name": 4}]}, "malformed_message"),
        ({"messages": [QUESTION, ANSWER], "tools": [{"name": "lookup"}]}, "malformed_tools"),
        ({"messages": [QUESTION, ANSWER], "tools": "[{"}, "malformed_tools"),
        ({"messages": [QUESTION, ANSWER], "tools": {"lookup": 1}}, "malformed_tools"),
        ({"messages": [{"role": "user", "content": " " * 1_100_000 + "x"}, ANSWER]}, "not_encodable"),
    ],
)
def test_row_without_a_conversation_is_a_reject_with_its_reason(row: object, reason: str) -> None:
    result = normalised({"messages": [QUESTION, ANSWER]}, row, {"messages": [QUESTION, ANSWER]})

    assert [(reject.row, reject.reason, reject.file) for reject in result.rejects] == [(1, reason, "data/train.jsonl")]
    assert result.batch.column("source_row").to_pylist() == [0, 2]
    assert result.counts[f"rejected/{reason}"] == 1
