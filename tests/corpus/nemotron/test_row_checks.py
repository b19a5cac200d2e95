"""Checks of normalized rows find the faults that they are for."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from nemotron_rows import ANSWER, LOOKUP, QUESTION, called, encoder, normalised, rows_recipe

from pipeline_assets.corpus.harmony.encode import AssistantAll, AssistantLast, HarmonyTokens, LossMode, encode_harmony
from pipeline_assets.corpus.harmony.message import Message, Role
from pipeline_assets.corpus.harmony.parse import ParsedText, Span, parse_harmony
from pipeline_assets.corpus.nemotron.row_checks import encoding_faults, span_faults, wrongly_flagged_rows

CALL = {**called({"word": "sum"}), "reasoning_content": "Look."}
ROW = {"messages": [QUESTION, CALL, {"role": "tool", "content": "4"}, ANSWER], "tools": [LOOKUP]}
LOSSES = [AssistantAll(analysis, calls) for analysis in (True, False) for calls in (True, False)]


def with_column(batch: pa.RecordBatch, name: str, values: list[object]) -> pa.RecordBatch:
    index = batch.schema.get_field_index(name)
    return batch.set_column(index, batch.schema.field(index), pa.array(values, batch.schema.field(index).type))


def encoded() -> tuple[ParsedText, HarmonyTokens]:
    parsed = parse_harmony(normalised(ROW).batch.column("text")[0].as_py())
    return parsed, encode_harmony([parsed], encoder())[0]


@pytest.mark.parametrize("loss", [*LOSSES, AssistantLast()], ids=str)
def test_sound_rows_pass_under_every_loss_mode(loss: LossMode) -> None:
    batch = normalised(ROW, {"messages": ROW["messages"][:2]}, settings=rows_recipe(loss=loss)).batch

    assert list(encoding_faults(batch, [0, 1], loss, encoder())) == []


def test_a_text_that_does_not_parse_is_found() -> None:
    batch = normalised(ROW, {"text": "no harmony"}, ROW).batch
    [text, _, _] = batch.column("text").to_pylist()

    assert list(wrongly_flagged_rows(batch)) == []
    other_texts = with_column(batch, "text", [text, "no harmony", text + "x"])
    assert [row for row, _ in wrongly_flagged_rows(other_texts)] == [2]
    other_flags = with_column(batch, "quality_valid_harmony", [True, True, False])
    assert [row for row, _ in wrongly_flagged_rows(other_flags)] == [1, 2]


@pytest.mark.parametrize("flag", [None, True, False])
def test_a_rendered_text_that_does_not_parse_is_found_whatever_its_flag(flag: bool | None) -> None:
    batch = with_column(normalised(ROW).batch, "template", ["chat/student/base@1234"])
    batch = with_column(with_column(batch, "loss_rule", ["no rule"]), "quality_valid_harmony", [flag])

    assert [row for row, _ in wrongly_flagged_rows(batch)] == [0]


@pytest.mark.parametrize("column", ["stats_tokens", "stats_completion_tokens"])
def test_a_wrong_count_is_found(column: str) -> None:
    batch = normalised(ROW, ROW).batch
    counts = batch.column(column).to_pylist()

    faults = list(encoding_faults(with_column(batch, column, [counts[0], counts[1] + 1]), [0, 1], LOSSES[0], encoder()))

    assert [row for row, _ in faults] == [1]


@pytest.mark.parametrize("rule", ["assistant_turns/1 messages=0", "assistant_all/9"])
def test_a_loss_rule_that_does_not_fit_the_text_is_found(rule: str) -> None:
    batch = with_column(normalised(ROW).batch, "loss_rule", [rule])

    assert [row for row, _ in encoding_faults(batch, [0], LOSSES[0], encoder())] == [0]


def test_ids_of_another_text_are_found() -> None:
    batch = normalised(ROW).batch
    other = with_column(batch, "text", [batch.column("text")[0].as_py().replace("2 + 2?", "3 + 3 + 3?")])

    assert [fault for _, fault in encoding_faults(other, [0], LOSSES[0], encoder())] != []


@pytest.mark.parametrize("shift", [(-1, 0), (1, 0), (0, -1), (0, 1)])
def test_a_body_off_by_one_token_is_found(shift: tuple[int, int]) -> None:
    parsed, tokens = encoded()
    bodies = tokens.bodies.copy()
    bodies[-1] += np.array(shift)

    assert list(span_faults(parsed, HarmonyTokens(tokens.ids, bodies), LOSSES[0], encoder())) != []


def test_a_span_that_is_off_by_a_character_is_found() -> None:
    parsed, tokens = encoded()
    last = parsed.messages[-1]
    shifted = last._replace(body=Span(last.body.start - 1, last.body.stop))

    changed = replace(parsed, messages=(*parsed.messages[:-1], shifted))

    assert list(span_faults(changed, tokens, LOSSES[0], encoder())) != []


def test_a_user_message_marked_as_the_assistants_is_found() -> None:
    parsed, tokens = encoded()
    messages = list(parsed.messages)
    user = next(number for number, parsed_message in enumerate(messages) if parsed_message.message.role is Role.USER)
    messages[user] = messages[user]._replace(message=Message(Role.ASSISTANT, messages[user].message.content))

    fault = next(span_faults(replace(parsed, messages=tuple(messages)), tokens, LOSSES[0], encoder()))
    assert fault == "messages [1, 2, 3, 5] count in the loss, expected [2, 3, 5] by their headers"
