"""Quality and size of a conversation."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nemotron_rows import ANSWER, LOOKUP, QUESTION, called, dropped_by, normalised, rows_recipe, to_row

from pipeline_assets.corpus.harmony.encode import AssistantAll, AssistantLast
from pipeline_assets.corpus.nemotron.row_columns import RUN_TOKENS, length_bin, repeated_fraction


@pytest.mark.parametrize("content", ["", "  \n", []])
def test_empty_answer_is_flagged_or_dropped(content: object) -> None:
    row = {"messages": [QUESTION, {"role": "assistant", "content": content, "reasoning_content": "Count."}]}

    assert to_row(row)["quality_completion_nonempty"] is False
    assert dropped_by(row, rows_recipe(drop_empty_completion=True))[0] == "empty_completion"


def test_empty_messages_in_mid_conversation_are_counted() -> None:
    empty, blank = {"role": "assistant", "content": ""}, {"role": "user", "content": " \n"}
    found_nothing = {"role": "tool", "content": None}
    silent = {"messages": [QUESTION, empty, blank, called({}), found_nothing, empty]}
    spoken = {"messages": [QUESTION, called({}), {"role": "tool", "content": "4"}, empty]}

    rows = normalised(silent, spoken).batch.to_pylist()

    assert [row["quality_empty_messages"] for row in rows] == [3, 0]
    assert [row["quality_completion_nonempty"] for row in rows] == [False, False]


def test_empty_messages_of_text_rows_are_counted() -> None:
    text = "<|start|>user<|message|><|end|><|start|>assistant<|channel|>final<|message|>4<|return|>"

    assert to_row({"text": text})["quality_empty_messages"] == 1
    assert to_row({"text": "no Harmony"})["quality_empty_messages"] == 0


def test_a_conversation_that_ends_with_the_user_has_no_completion() -> None:
    assert to_row({"messages": [QUESTION, ANSWER, QUESTION]})["quality_completion_nonempty"] is False


@pytest.mark.parametrize(
    ("loss", "has_completion"),
    [
        (AssistantAll(has_analysis=True, has_calls=True), True),
        (AssistantAll(has_analysis=True, has_calls=False), False),
        (AssistantLast(), False),
    ],
    ids=str,
)
def test_a_last_call_is_a_completion_if_calls_count_in_the_loss(
    loss: AssistantAll | AssistantLast, has_completion: bool
) -> None:
    row = {"messages": [QUESTION, called({"word": "sum"})], "tools": [LOOKUP]}
    drops = rows_recipe(loss=loss, drop_empty_completion=True)

    assert to_row(row, rows_recipe(loss=loss))["quality_completion_nonempty"] is has_completion
    assert has_completion or dropped_by(row, drops)[0] == "empty_completion"


@pytest.mark.parametrize(
    ("tokens", "length"), [(0, "short"), (127, "short"), (128, "normal"), (16_384, "normal"), (16_385, "long")]
)
def test_length_bins_have_these_bounds(tokens: int, length: str) -> None:
    assert length_bin(tokens) == length


@pytest.mark.parametrize(
    ("loss", "completion"),
    [
        (AssistantAll(has_analysis=True, has_calls=True), 2 + 5 + 1),
        (AssistantAll(has_analysis=False, has_calls=True), 5 + 1),
        (AssistantAll(has_analysis=True, has_calls=False), 2 + 1),
        (AssistantLast(), 1),
    ],
    ids=str,
)
def test_completion_tokens_are_the_tokens_in_the_loss(loss: AssistantAll | AssistantLast, completion: int) -> None:
    call = {**called('{"word":"sum"}'), "reasoning_content": "Count."}
    row = {"messages": [QUESTION, call, {"role": "tool", "content": "4"}, ANSWER], "tools": [LOOKUP]}

    values = to_row(row, rows_recipe(loss=loss))

    assert values["stats_completion_tokens"] == completion
    assert (values["loss_mode"], values["loss_rule"]) == (loss.name, loss.rule)
    assert loss.rule.startswith(f"{loss.name}/1")


def plain_repeated_fraction(ids: list[int]) -> float:
    """Return the repeated fraction of runs by a set."""
    runs = [tuple(ids[start : start + RUN_TOKENS]) for start in range(len(ids) - RUN_TOKENS + 1)]
    return round(1 - len(set(runs)) / len(runs), 4) if runs else 0.0


@given(st.lists(st.integers(0, 2), max_size=60) | st.lists(st.integers(0, 201_087), max_size=40), st.integers(1, 4))
def test_repetition_is_the_fraction_of_repeated_runs(ids: list[int], times: int) -> None:
    assert repeated_fraction(np.array(ids * times, np.int32)) == plain_repeated_fraction(ids * times)
