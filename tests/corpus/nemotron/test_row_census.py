"""Census of rows: keys and types by role; the tallies of shards add up."""

import json
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest
from nemotron_hub import synthetic_rows
from nemotron_rows import ANSWER, QUESTION, to_row

from pipeline_assets.corpus.nemotron.row_census import MAX_NAMES, OTHERS, RowCensus, Tally, add_tally
from pipeline_assets.corpus.nemotron.row_checks import COVERAGE_COLUMNS


def count_rows(*rows: dict[str, Any]) -> Tally:
    census = RowCensus()
    for row in rows:
        census.add_row(row)
    return census.tally()


def test_columns_are_counted_by_name_and_type() -> None:
    tally = count_rows({"a": 1, "b": None}, {"a": "one", "b": [1]}, {"a": True, "c": {"k": 0.5}})

    assert tally["columns"] == {"a": {"int": 1, "str": 1, "bool": 1}, "b": {"null": 1, "list": 1}, "c": {"dict": 1}}


@pytest.mark.parametrize("nothing", [None, "", []])
def test_an_empty_column_counts_as_absent(nothing: object) -> None:
    names = ("uuid", "tools", "messages", "reasoning", "license", "metadata", "expected_answer", "difficulty", "text")

    assert "coverage" not in count_rows(dict.fromkeys(names, nothing))


COUNTED = {"reason_low_no_tool": {"count": 8, "pass": 4, "accuracy": 0.5}}
TOOLS = [{"type": "function", "function": {"name": "f"}}]


@pytest.mark.parametrize(
    ("columns", "names"),
    [
        ({"expected_answer": 0}, {"expected_answer"}),
        ({"reasoning": False, "license": {}}, {"reasoning_label", "licence"}),
        ({"uuid": 7}, {"uuid"}),
        ({"tools": json.dumps(TOOLS)}, {"tools"}),
        ({"tools": "[]"}, set()),
        ({"metadata": json.dumps(COUNTED)}, {"correctness", "solved"}),
        ({"metadata": {"reason_low_no_tool": {"count": 8, "pass": 0, "accuracy": 0.0}}}, {"correctness", "solved"}),
        ({"metadata": {"reason_low_no_tool": {"count": 0, "pass": 0, "accuracy": 0.0}}}, set()),
        ({"metadata": "text"}, set()),
        ({"metadata": {"reason_low_no_tool": {"accuracy": "0.5"}}}, {"correctness"}),
        ({"metadata": {"reason_low_no_tool": {"count": 8, "pass": 9, "accuracy": 1.0}}}, set()),
        ({"metadata": {"reason_max_no_tool": COUNTED["reason_low_no_tool"]}}, set()),
        ({"difficulty": "hard"}, {"difficulty_stated"}),
        ({"difficulty_bin": "hard", "metadata": COUNTED}, {"difficulty_stated", "correctness", "solved"}),
        ({"formal_statement": 1.5}, {"formal_statement"}),
    ],
)
def test_coverage_names_exactly_the_columns_that_normalised_rows_have(columns: dict[str, Any], names: set[str]) -> None:
    row = {"messages": [QUESTION, ANSWER], **columns}

    coverage = count_rows(row)["coverage"]
    normalised = to_row(row)

    filled = {name for name, column in COVERAGE_COLUMNS.items() if normalised[column] is not None}
    assert set(coverage) == {"messages", *names}
    assert filled == names & COVERAGE_COLUMNS.keys()


def test_unreadable_tools_are_counted() -> None:
    assert count_rows({"tools": "["})["coverage"] == {"tools": 1}
    assert count_rows({"tools": {}})["coverage"] == {"tools": 1}


@pytest.mark.parametrize(
    ("messages", "counted"),
    [
        ("text", {}),
        ([1, None, "x"], {"(no object)": {"types": {"int": 1, "null": 1, "str": 1}}}),
        ([{"role": 5}], {"(no role)": {"keys": {"role": {"int": 1}}}}),
        ([{"content": 1.5}], {"(no role)": {"keys": {"content": {"float": 1}}}}),
        (
            [{"role": "assistant", "tool_calls": ["x", {"arguments": 1}]}],
            {
                "assistant": {
                    "keys": {"role": {"str": 1}, "tool_calls": {"list": 1}},
                    "calls": {"(no object)": {"str": 1}, "arguments": {"int": 1}},
                    "arguments": {"int": 1},
                }
            },
        ),
    ],
)
def test_messages_of_any_type_are_counted(messages: object, counted: Tally) -> None:
    assert count_rows({"messages": messages}).get("messages", {}) == counted


def test_tags_are_counted_by_value() -> None:
    tally = count_rows({"license": "mit", "used_in": ["a", "b"]}, {"license": "mit", "used_in": []}, {"license": 5})

    assert tally["tags"] == {"license": {"mit": 2}, "used_in": {"a": 1, "b": 1}}


def test_memory_is_bounded_for_any_names() -> None:
    tally = count_rows(*({f"column {number}": number, "license": "x" * number} for number in range(5000)))

    columns = tally["columns"]
    assert len(columns) == MAX_NAMES + 1 and OTHERS in columns
    assert sum(types.get("int", 0) for types in columns.values()) == 5000
    assert max(map(len, tally["tags"]["license"])) == 201


SPLITS = ("low", "high_part01", "lean", "tool_calling", "interactive_agent")
ROWS = st.lists(st.sampled_from([row for split in SPLITS for row in synthetic_rows(split)]), max_size=20)


@hypothesis.given(ROWS, ROWS)
def test_tallies_of_two_shards_add_up(first: list[dict[str, Any]], second: list[dict[str, Any]]) -> None:
    total: Tally = json.loads(json.dumps(count_rows(*first)))
    add_tally(total, json.loads(json.dumps(count_rows(*second))))

    assert total == count_rows(*first, *second)
