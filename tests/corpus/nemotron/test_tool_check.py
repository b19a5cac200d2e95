"""Check of calls against the tools that their row declares."""

import copy
import hashlib
import json

import pytest
from nemotron_rows import ANSWER, LOOKUP, QUESTION, called, normalised, to_row


def check_calls(*arguments: object, tools: object = (LOOKUP,), name: str = "lookup") -> object:
    listed = list(tools) if isinstance(tools, tuple) else tools
    return to_row({"messages": [QUESTION, called(*arguments, name=name)], "tools": listed})["quality_valid_tool_schema"]


def test_calls_that_fit_declared_tools_are_valid_and_others_invalid() -> None:
    bare = {"type": "function", "function": {"name": "lookup", "description": None}}

    assert check_calls({"word": "sum"}, '{"word": "sum", "more": 1}') is True
    assert check_calls({"word": 1}, tools=(bare,)) is True  # it has no parameters
    assert check_calls({"word": "sum"}, name="search") is False
    assert check_calls({"word": "sum"}, tools=None) is False


@pytest.mark.parametrize(
    "arguments",
    [
        *({}, {"word": 1}, "word: sum", "[]", '"sum"', '{"word": NaN}', '{"word": 1e400}'),
        pytest.param("[" * 100_000, id="broken and deep"),
        pytest.param('{"word": "a", "more": ' + "[" * 70 + "]" * 70 + "}", id="deep"),
    ],
    ids=str,
)
def test_a_call_that_does_not_fit_makes_the_row_invalid_but_keeps_it(arguments: object) -> None:
    assert check_calls({"word": "sum"}, arguments) is False


def test_all_calls_of_a_row_share_one_budget_of_steps() -> None:
    function = {"name": "lookup", "description": "d", "parameters": {"enum": [{"n": 1}] * 20_000}}
    tools = ({"type": "function", "function": function},)

    assert check_calls(*[{"n": 1}] * 4, tools=tools) is True
    assert check_calls(*[{"n": 1}] * 6, tools=tools) is False


def test_calls_in_harmony_text_are_checked_only_against_a_tools_column() -> None:
    text = to_row({"messages": [QUESTION, called({"word": "sum"})], "tools": [LOOKUP]})["text"]

    assert to_row({"text": text, "tools": [LOOKUP]})["quality_valid_tool_schema"] is True
    assert to_row({"text": text.replace("sum", '"'), "tools": [LOOKUP]})["quality_valid_tool_schema"] is False
    assert to_row({"text": text})["quality_valid_tool_schema"] is None


def test_the_catalogue_has_each_tool_list_once_under_its_canonical_hash() -> None:
    other_order = {"function": dict(reversed(LOOKUP["function"].items())), "type": "function"}
    row = {"messages": [QUESTION, ANSWER]}

    result = normalised({**row, "tools": [LOOKUP]}, {**row, "tools": [other_order]}, row)

    canonical = json.dumps([LOOKUP], sort_keys=True, separators=(",", ":"))
    tools_id = hashlib.sha256(canonical.encode()).hexdigest()
    assert result.tool_lists == {tools_id: canonical}
    assert result.batch.column("source_tools_id").to_pylist() == [tools_id, tools_id, None]
    assert result.batch.column("source_tools_count").to_pylist() == [1, 1, 0]


def test_very_large_tools_are_still_checked() -> None:
    large = copy.deepcopy(LOOKUP)
    large["function"]["description"] = "word " * 20_000

    values = to_row({"messages": [QUESTION, called({"word": "sum"})], "tools": [large]})

    assert values["quality_valid_tool_schema"] is True and "word word" in values["text"]
