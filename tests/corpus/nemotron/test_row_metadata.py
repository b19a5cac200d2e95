"""Metadata of rows: difficulty, licence, tags and columns without a place."""

import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest
from nemotron_rows import ANSWER, LOOKUP, ORIGIN, QUESTION, called, rows_recipe, to_row

from pipeline_assets.corpus.harmony import sha1_text_id
from pipeline_assets.corpus.nemotron.schema import COLUMN_DESCRIPTIONS, SCHEMA

ROW = {"messages": [QUESTION, ANSWER]}


def test_each_column_of_the_schema_has_a_description_in_order() -> None:
    assert list(COLUMN_DESCRIPTIONS) == SCHEMA.names and all(field.nullable for field in SCHEMA)
    assert all(
        text == text.strip() and text.endswith((".", "…")) and "|" not in text for text in COLUMN_DESCRIPTIONS.values()
    )


def test_a_row_has_the_sha1_of_its_text() -> None:
    row = to_row(ROW)

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
def test_the_difficulty_bin_comes_from_the_source(split: str, columns: dict[str, Any], difficulty: str | None) -> None:
    assert to_row({**ROW, **columns}, origin=replace(ORIGIN, split=split))["meta_difficulty_bin"] == difficulty


def test_columns_without_a_place_are_kept_as_canonical_json() -> None:
    row = {**ROW, "problem": "2 + 2?", "sft_line_number": 7, "é": 0.5, "original_expected_answer": None, "extra": {}}

    assert to_row(row)["meta_source_json"] == '{"extra":{},"problem":"2 + 2?","sft_line_number":7,"é":0.5}'


def test_a_uuid_that_is_not_the_id_is_kept() -> None:
    row = to_row({**ROW, "uuid": "abc#2"})

    assert row["id"] != "abc#2"
    assert row["meta_source_json"] == '{"uuid":"abc#2"}'
    assert to_row({**ROW, "uuid": "abc"})["meta_source_json"] is None


def test_names_and_links_of_users_are_kept_only_on_request() -> None:
    row = {**ROW, "url": "a://q", "user_url": "a://u", "user_name": "ann"}

    assert to_row(row)["meta_source_json"] is None
    names = to_row(row, rows_recipe(keep_user_names=True))["meta_source_json"]
    links = to_row(row, rows_recipe(keep_urls=True))["meta_source_json"]
    assert (names, links) == ('{"user_name":"ann"}', '{"url":"a://q","user_url":"a://u"}')


@pytest.mark.parametrize("metadata", ["{", "none", [1], 7])
def test_evaluations_of_another_form_are_kept_but_not_interpreted(metadata: object) -> None:
    values = to_row({**ROW, "metadata": metadata})

    assert values["meta_correctness"] is None
    assert values["meta_eval_json"] is not None


def test_tags_describe_the_content_of_a_row() -> None:
    answer = {**ANSWER, "reasoning_content": "Count."}
    calls = [QUESTION, called({"word": "sum"}), {"role": "tool", "content": "4"}, answer, QUESTION, answer]
    row = {"messages": calls, "tools": [LOOKUP], "data_source": "aops", "changed_answer_to_majority": True}

    assert to_row(row)["meta_tags"] == [
        *("changed_answer_to_majority", "multi_turn", "reasoning", "source:aops", "tool_calls", "tools")
    ]
    assert to_row({**ROW, "tags": ["b", "a"]})["meta_tags"] == ["a", "b"]
    assert to_row(ROW)["meta_tags"] == []


@pytest.mark.parametrize(("tools", "tags"), [([], []), (None, []), ([LOOKUP], ["tools"])])
def test_tools_as_json_text_are_tagged_unless_empty(tools: object, tags: list[str]) -> None:
    assert to_row({**ROW, "tools": json.dumps(tools)})["meta_tags"] == tags


def test_columns_of_another_type_are_kept_as_json() -> None:
    row = {**ROW, "license": ["a", "b"], "used_in": "nano_v3", "expected_answer": 4, "reasoning": True, "uuid": 12}

    values = to_row(row)

    assert (values["meta_license"], values["meta_used_in"]) == ('["a","b"]', ["nano_v3"])
    assert (values["meta_expected_answer"], values["meta_reasoning"], values["id"]) == ("4", "true", "12")
