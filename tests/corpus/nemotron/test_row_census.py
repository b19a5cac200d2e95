"""What is counted of rows: keys and types by role, what is there and what isn't; sums of parts are the whole."""

import json
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest
from nemotron_hub import made_rows
from nemotron_rows import ANSWER, QUESTION, row_of

from pipeline_assets.corpus.nemotron.row_census import MAX_NAMES, OTHERS, RowCensus, Tally, add_tally
from pipeline_assets.corpus.nemotron.row_checks import COVERAGE_COLUMNS


def tally_of(*rows: dict[str, Any]) -> Tally:
    census = RowCensus()
    for row in rows:
        census.add_row(row)
    return census.tally()


def test_columns_are_counted_by_name_and_type() -> None:
    tally = tally_of({"a": 1, "b": None}, {"a": "one", "b": [1]}, {"a": True, "c": {"k": 0.5}})

    assert tally["columns"] == {
        "a": {"int": 1, "str": 1, "bool": 1},
        "b": {"null": 1, "list": 1},
        "c": {"dict": 1},
    }


@pytest.mark.parametrize("nothing", [None, "", []])
def test_nothing_in_a_column_is_as_if_it_were_absent(nothing: object) -> None:
    names = ("uuid", "tools", "messages", "reasoning", "license", "metadata", "expected_answer", "difficulty", "text")

    assert "coverage" not in tally_of(dict.fromkeys(names, nothing))


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
def test_it_is_there_where_a_row_that_is_made_of_it_has_it(columns: dict[str, Any], names: set[str]) -> None:
    row = {"messages": [QUESTION, ANSWER], **columns}

    coverage = tally_of(row)["coverage"]
    made = row_of(row)

    assert set(coverage) == {"messages", *names}
    assert {
        name for name, column in COVERAGE_COLUMNS.items() if made[column] is not None
    } == names & COVERAGE_COLUMNS.keys()


def test_tools_that_cannot_be_read_are_there() -> None:
    assert tally_of({"tools": "["})["coverage"] == {"tools": 1}
    assert tally_of({"tools": {}})["coverage"] == {"tools": 1}


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
def test_messages_of_any_type_are_counted_and_none_stops_it(messages: object, counted: Tally) -> None:
    assert tally_of({"messages": messages}).get("messages", {}) == counted


def test_tags_are_counted_by_value() -> None:
    tally = tally_of({"license": "mit", "used_in": ["a", "b"]}, {"license": "mit", "used_in": []}, {"license": 5})

    assert tally["tags"] == {"license": {"mit": 2}, "used_in": {"a": 1, "b": 1}}


def test_memory_is_bounded_whatever_names_there_are() -> None:
    tally = tally_of(*({f"column {number}": number, "license": "x" * number} for number in range(5000)))

    columns = tally["columns"]
    assert len(columns) == MAX_NAMES + 1 and OTHERS in columns
    assert sum(types.get("int", 0) for types in columns.values()) == 5000
    assert max(map(len, tally["tags"]["license"])) == 201


ROWS = st.lists(
    st.sampled_from(
        [
            row
            for split in ("low", "high_part01", "lean", "tool_calling", "interactive_agent")
            for row in made_rows(split)
        ]
    ),
    max_size=20,
)


@hypothesis.given(ROWS, ROWS)
def test_counts_of_two_shards_add_up_to_one_of_both(first: list[dict[str, Any]], second: list[dict[str, Any]]) -> None:
    total: Tally = json.loads(json.dumps(tally_of(*first)))
    add_tally(total, json.loads(json.dumps(tally_of(*second))))

    assert total == tally_of(*first, *second)
