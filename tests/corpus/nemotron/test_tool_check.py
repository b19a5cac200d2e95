"""Whether calls are calls of declared tools, and which tools a row declares."""

import copy
import hashlib
import json

import pytest
from nemotron_rows import ANSWER, LOOKUP, QUESTION, called, normalised, row_of


def verdict(*arguments: object, tools: object = (LOOKUP,), name: str = "lookup") -> object:
    given = list(tools) if isinstance(tools, tuple) else tools
    return row_of({"messages": [QUESTION, called(*arguments, name=name)], "tools": given})["quality_valid_tool_schema"]


def test_calls_that_fit_declared_tools_are_valid_and_others_are_not() -> None:
    bare = {"type": "function", "function": {"name": "lookup", "description": None}}

    assert verdict({"word": "sum"}, '{"word": "sum", "more": 1}') is True
    assert verdict({"word": 1}, tools=(bare,)) is True  # it has no parameters
    assert verdict({"word": "sum"}, name="search") is False
    assert verdict({"word": "sum"}, tools=None) is False


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"word": 1},
        "word: sum",
        "[]",
        '"sum"',
        '{"word": NaN}',
        '{"word": 1e400}',
        "[" * 100_000,
        '{"word": "a", "more": ' + "[" * 70 + "]" * 70 + "}",
    ],
    ids=["missing", "type", "no JSON", "a list", "a string", "NaN", "no number", "broken and deep", "deep"],
)
def test_a_call_that_does_not_fit_makes_the_row_invalid_but_keeps_it(arguments: object) -> None:
    assert verdict({"word": "sum"}, arguments) is False


def test_the_calls_of_a_row_share_their_steps() -> None:
    function = {"name": "lookup", "description": "d", "parameters": {"enum": [{"n": 1}] * 20_000}}
    tools = ({"type": "function", "function": function},)

    assert verdict(*[{"n": 1}] * 4, tools=tools) is True
    assert verdict(*[{"n": 1}] * 6, tools=tools) is False


def test_of_harmony_text_it_is_told_from_the_rows_tools_or_not_at_all() -> None:
    text = row_of({"messages": [QUESTION, called({"word": "sum"})], "tools": [LOOKUP]})["text"]

    assert row_of({"text": text, "tools": [LOOKUP]})["quality_valid_tool_schema"] is True
    assert row_of({"text": text.replace("sum", '"'), "tools": [LOOKUP]})["quality_valid_tool_schema"] is False
    assert row_of({"text": text})["quality_valid_tool_schema"] is None


def test_the_catalogue_has_each_list_of_tools_once_under_the_hash_of_its_canonical_json() -> None:
    other_order = {"function": dict(reversed(LOOKUP["function"].items())), "type": "function"}
    row = {"messages": [QUESTION, ANSWER]}

    result = normalised({**row, "tools": [LOOKUP]}, {**row, "tools": [other_order]}, row)

    canonical = json.dumps([LOOKUP], sort_keys=True, separators=(",", ":"))
    tools_id = hashlib.sha256(canonical.encode()).hexdigest()
    assert result.tool_lists == {tools_id: canonical}
    assert result.batch.column("source_tools_id").to_pylist() == [tools_id, tools_id, None]
    assert result.batch.column("source_tools_count").to_pylist() == [1, 1, 0]


def test_tools_as_json_text_are_the_same_tools() -> None:
    row = {"messages": [QUESTION, ANSWER]}

    as_text, as_list = (row_of({**row, "tools": tools}) for tools in (json.dumps([LOOKUP]), [LOOKUP]))

    assert as_text == as_list


def test_tools_too_large_to_keep_are_read_all_the_same() -> None:
    large = copy.deepcopy(LOOKUP)
    large["function"]["description"] = "word " * 20_000

    values = row_of({"messages": [QUESTION, called({"word": "sum"})], "tools": [large]})

    assert values["quality_valid_tool_schema"] is True and "word word" in values["text"]
