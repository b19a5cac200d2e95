"""Soft checks of rows and their counts in the inventory."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from nemotron_rows import ANSWER, LOOKUP, QUESTION, called, normalised, reply, to_row

from pipeline_assets.corpus.nemotron.inventory import read_inventory
from pipeline_assets.spine.artifact import Artifact

CALL = called({"word": "a"})
TWO_CALLS = called({"word": "a"}, {"word": "b"})


def answer_call(number: int) -> dict[str, object]:
    return {**reply("four"), "tool_call_id": f"call_{number}"}


def repeat_line(times: int, line: str = "so") -> dict[str, str]:
    return {"role": "assistant", "content": "\n".join(["first", *[line] * times, "last"])}


ROWS = {
    "a full talk": ([QUESTION, CALL, reply("four"), ANSWER], []),
    "an unknown tool": ([QUESTION, called({}, name="search"), reply("four"), ANSWER], ["undeclared_tool"]),
    "a name with the namespace": ([QUESTION, called({}, name="functions.lookup"), reply("a")], ["undeclared_tool"]),
    "replies in order": ([QUESTION, TWO_CALLS, answer_call(0), answer_call(1), ANSWER], []),
    "replies out of order": ([QUESTION, TWO_CALLS, answer_call(1), answer_call(0), ANSWER], ["reply_order"]),
    "no reply before the answer": ([QUESTION, CALL, ANSWER], ["unanswered_call"]),
    "one reply of two": ([QUESTION, TWO_CALLS, answer_call(0)], ["unanswered_call"]),
    "calls at the end": ([QUESTION, CALL, reply("four"), TWO_CALLS], []),
    "nine lines": ([QUESTION, repeat_line(9)], []),
    "ten lines": ([QUESTION, repeat_line(10)], ["repeated_lines"]),
    "only ten lines": ([QUESTION, {"role": "assistant", "content": "so\n" * 10}], ["repeated_lines"]),
    "ten lines of two messages": ([QUESTION, repeat_line(9), {"role": "user", "content": "so"}], []),
    "ten blank lines": ([QUESTION, repeat_line(10, "  ")], []),
}


def list_checks(row: dict[str, object]) -> list[str]:
    return [tag for tag in row["meta_tags"] if tag.startswith("check:")]


@pytest.mark.parametrize(("messages", "checks"), ROWS.values(), ids=ROWS)
def test_a_row_has_a_tag_for_each_check_that_it_fails_also_as_text(messages: list[object], checks: list[str]) -> None:
    row = to_row({"messages": messages, "tools": [LOOKUP]})

    assert list_checks(row) == [f"check:{name}" for name in checks]
    if checks != ["reply_order"]:  # a text has no ids of calls
        assert list_checks(to_row({"text": row["text"], "tools": [LOOKUP]})) == list_checks(row)


def test_tools_of_a_text_without_a_tools_column_are_unknown() -> None:
    text = to_row({"messages": [QUESTION, CALL, reply("4"), ANSWER]})["text"]

    assert "check:undeclared_tool" in to_row({"messages": [QUESTION, CALL, reply("4"), ANSWER]})["meta_tags"]
    assert "check:undeclared_tool" not in to_row({"text": text})["meta_tags"]


def test_the_inventory_counts_the_same_rows(tmp_path: Path, inventories: Callable[..., dict[str, Artifact]]) -> None:
    rows = [{"messages": messages, "tools": [LOOKUP]} for messages, _ in ROWS.values()]
    blank = {"role": "user", "content": [{"type": "text", "text": " "}]}
    rows += [
        {"messages": [prompt, ANSWER], "metadata": {"seed_prompt_sha256": "ab"}} for prompt in ({"role": "user"}, blank)
    ]
    rows.append({"messages": [QUESTION, ANSWER], "metadata": {"train_turns": [False, True]}})
    rows.append({"messages": [json.dumps(QUESTION), json.dumps(CALL)], "tools": [LOOKUP]})
    rows.append({"messages": [QUESTION, "no JSON"]})
    (tmp_path / "chats").mkdir()
    (tmp_path / "chats" / "train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))

    inventory = read_inventory(inventories(tmp_path / "chats", "train")["train"])

    tags = [tag for row in normalised(*rows).batch.to_pylist() for tag in row["meta_tags"]]
    names = ["undeclared_tool", "reply_order", "unanswered_call", "repeated_lines"]
    counts = {name: inventory["coverage"][name]["rows"] for name in (*names, "prompt_withheld", "train_turns")}
    assert counts == {name: tags.count(f"check:{name}") for name in names} | {"prompt_withheld": 2, "train_turns": 1}
    assert counts["unanswered_call"] == 2
    assert inventory["messages"]["assistant"]["arguments"] == {"dict": 14}
    assert inventory["messages"]["(no object)"]["types"] == {"str": 1}
