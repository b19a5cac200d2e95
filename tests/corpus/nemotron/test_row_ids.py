"""Ids of rows: the uuid, else a hash of the columns of the conversation."""

import hashlib
import json

import pytest
from nemotron_rows import ANSWER, QUESTION

from pipeline_assets.corpus.nemotron.row_columns import row_id

ROW = {"problem": "2 + 2?", "messages": [QUESTION, ANSWER]}


def get_id(row: object, dataset: str = "maker/math", split: str = "low") -> str:
    return row_id(row, dataset, split)


def test_the_id_is_the_uuid() -> None:
    assert get_id({**ROW, "uuid": "307c2636-ee59"}) == "307c2636-ee59"


def test_without_a_uuid_the_id_is_a_hash_of_the_conversation_columns() -> None:
    identity = {"dataset": "maker/math", "split": "low", "uuid": None, "columns": ROW}
    canonical = json.dumps(identity, sort_keys=True, separators=(",", ":"))

    assert get_id(ROW) == hashlib.sha256(canonical.encode()).hexdigest()


@pytest.mark.parametrize(
    "row",
    [
        {**ROW, "uuid": None, "text": ""},
        {**ROW, "license": "cc-by-4.0", "metadata": {"a": 1}, "url": "a://b"},
        {**ROW, "messages": [{**QUESTION, "reasoning_content": None}, {**ANSWER, "tool_calls": []}]},
        {"messages": [dict(reversed(QUESTION.items())), ANSWER], "problem": "2 + 2?"},
    ],
    ids=["filled", "more columns", "filled messages", "order of keys"],
)
def test_the_id_depends_neither_on_the_form_of_a_row_nor_on_other_columns(row: object) -> None:
    assert get_id(row) == get_id(ROW)


def test_another_question_answer_split_or_dataset_gives_another_id() -> None:
    changed = [{**ROW, "problem": "3"}, {**ROW, "messages": [QUESTION]}, {**ROW, "uuid": "a#2"}]

    ids = [get_id(ROW), *map(get_id, changed), get_id(ROW, split="high"), get_id(ROW, dataset="maker/chat")]

    assert len(set(ids)) == 6
