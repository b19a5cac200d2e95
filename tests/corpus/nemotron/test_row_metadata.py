"""What a row says of itself, beside its conversation."""

import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest
from nemotron_rows import ANSWER, LOOKUP, ORIGIN, QUESTION, called, row_of, settings_of

from pipeline_assets.corpus.harmony import sha1_text_id
from pipeline_assets.corpus.nemotron.schema import COLUMN_DESCRIPTIONS, SCHEMA

ROW = {"messages": [QUESTION, ANSWER]}


def test_each_column_of_the_schema_has_a_line_in_its_order() -> None:
    assert list(COLUMN_DESCRIPTIONS) == SCHEMA.names and all(field.nullable for field in SCHEMA)
    assert all(
        line == line.strip() and line.endswith((".", "…")) and "|" not in line for line in COLUMN_DESCRIPTIONS.values()
    )


def test_a_row_has_the_sha1_of_its_text_which_other_sets_of_harmony_texts_have_too() -> None:
    row = row_of(ROW)

    assert row["text_sha1"] == hashlib.sha1(row["text"].encode()).hexdigest() == sha1_text_id(row["text"])


@pytest.mark.parametrize(
    ("split", "columns", "difficulty"),
    [
        ("high_part00", {}, "high"),
        ("medium", {}, "medium"),
        ("low", {"difficulty": "high"}, "high"),
        ("low", {"difficulty": "hard", "difficulty_bin": 3}, "low"),
        ("train", {"difficulty_bin": "medium"}, "medium"),
        ("train", {}, None),
        ("lowest", {}, None),
        ("tool_low", {}, None),
    ],
)
def test_the_difficulty_is_the_bin_of_the_source(split: str, columns: dict[str, Any], difficulty: str | None) -> None:
    assert row_of({**ROW, **columns}, origin=replace(ORIGIN, split=split))["meta_difficulty_bin"] == difficulty


def test_columns_that_have_no_other_place_are_kept_as_canonical_json() -> None:
    row = {**ROW, "problem": "2 + 2?", "sft_line_number": 7, "é": 0.5, "original_expected_answer": None, "extra": {}}

    assert row_of(row)["meta_source_json"] == '{"extra":{},"problem":"2 + 2?","sft_line_number":7,"é":0.5}'


def test_a_uuid_that_is_not_the_id_is_kept_too() -> None:
    row = row_of({**ROW, "uuid": "abc#2"})

    assert row["id"] != "abc#2"
    assert row["meta_source_json"] == '{"uuid":"abc#2"}'
    assert row_of({**ROW, "uuid": "abc"})["meta_source_json"] is None


def test_names_and_links_of_users_are_kept_only_by_setting() -> None:
    row = {**ROW, "url": "a://q", "user_url": "a://u", "user_name": "ann"}

    assert row_of(row)["meta_source_json"] is None
    names = row_of(row, settings_of(keep_user_names=True))["meta_source_json"]
    links = row_of(row, settings_of(keep_urls=True))["meta_source_json"]
    assert (names, links) == ('{"user_name":"ann"}', '{"url":"a://q","user_url":"a://u"}')


@pytest.mark.parametrize("metadata", ["{", "none", [1], 7])
def test_evaluations_of_another_form_are_kept_and_say_nothing(metadata: object) -> None:
    values = row_of({**ROW, "metadata": metadata})

    assert values["meta_correctness"] is None
    assert values["meta_eval_json"] is not None


def test_tags_say_what_the_row_has() -> None:
    answer = {**ANSWER, "reasoning_content": "Count."}
    calls = [QUESTION, called({"word": "sum"}), {"role": "tool", "content": "4"}, answer, QUESTION, answer]
    row = {"messages": calls, "tools": [LOOKUP], "data_source": "aops", "changed_answer_to_majority": True}

    assert row_of(row)["meta_tags"] == [
        *("changed_answer_to_majority", "multi_turn", "reasoning", "source:aops", "tool_calls", "tools")
    ]
    assert row_of({**ROW, "tags": ["b", "a"]})["meta_tags"] == ["a", "b"]
    assert row_of(ROW)["meta_tags"] == []


@pytest.mark.parametrize(("tools", "tags"), [([], []), (None, []), ([LOOKUP], ["tools"])])
def test_tools_as_json_text_are_tagged_if_there_are_any(tools: object, tags: list[str]) -> None:
    assert row_of({**ROW, "tools": json.dumps(tools)})["meta_tags"] == tags


def test_columns_of_another_type_are_kept_as_json() -> None:
    row = {**ROW, "license": ["a", "b"], "used_in": "nano_v3", "expected_answer": 4, "reasoning": True, "uuid": 12}

    values = row_of(row)

    assert (values["meta_license"], values["meta_used_in"]) == ('["a","b"]', ["nano_v3"])
    assert (values["meta_expected_answer"], values["meta_reasoning"], values["id"]) == ("4", "true", "12")
