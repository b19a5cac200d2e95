"""Ids: the uuid, else a hash of what was asked and said."""

import hashlib
import json

import pytest
from nemotron_rows import ANSWER, QUESTION

from pipeline_assets.corpus.nemotron.row_columns import row_id

ROW = {"problem": "2 + 2?", "messages": [QUESTION, ANSWER]}


def id_of(row: object, dataset: str = "maker/math", split: str = "low") -> str:
    return row_id(row, dataset, split)


def test_the_id_is_the_uuid() -> None:
    assert id_of({**ROW, "uuid": "307c2636-ee59"}) == "307c2636-ee59"


def test_without_a_uuid_it_is_a_hash_of_what_was_asked_and_said() -> None:
    identity = {"dataset": "maker/math", "split": "low", "uuid": None, "columns": ROW}
    canonical = json.dumps(identity, sort_keys=True, separators=(",", ":"))

    assert id_of(ROW) == hashlib.sha256(canonical.encode()).hexdigest()


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
def test_how_a_row_was_read_and_what_else_is_known_changes_nothing(row: object) -> None:
    assert id_of(row) == id_of(ROW)


def test_another_question_answer_split_or_dataset_is_another_id() -> None:
    others = [{**ROW, "problem": "3"}, {**ROW, "messages": [QUESTION]}, {**ROW, "uuid": "a#2"}]

    ids = [id_of(ROW), *map(id_of, others), id_of(ROW, split="high"), id_of(ROW, dataset="maker/chat")]

    assert len(set(ids)) == 6
