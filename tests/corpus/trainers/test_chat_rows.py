"""Harmony texts as chat messages: every body once, with its part of the loss."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from nemotron_rows import ANSWER, INLINE, LOOKUP, QUESTION, called, normalised, reply
from subset_pools import talk

from pipeline_assets.corpus.harmony.encode import loss_message_indexes, row_loss_mode
from pipeline_assets.corpus.harmony.parse import parse_harmony
from pipeline_assets.corpus.nemotron.schema import SCHEMA
from pipeline_assets.corpus.trainers.chat_rows import ChatFile, chat_messages, write_chat_file
from pipeline_assets.spine.engine import run_stage
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.stage import WHOLE_SHARD
from pipeline_assets.spine.staging import StagingView

Row = dict[str, Any]
SYSTEM = "<|start|>system<|message|>You are ChatGPT.<|end|>"


def write_source(
    tmp_path: Path, rows: list[Row], tools: dict[str, Any] | None = None, complete: bool = True
) -> ChatFile:
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), tmp_path / "rows.parquet")
    (tmp_path / "tools.json").write_text(json.dumps(tools or {}))
    (tmp_path / "out").mkdir()
    return ChatFile("00000", "data/x.parquet", tmp_path / "rows.parquet", (tmp_path / "tools.json",), complete)


def export(tmp_path: Path, rows: list[Row], tools: dict[str, Any] | None = None, complete: bool = True) -> list[Row]:
    """Export rows as chat messages; return the exported rows."""
    write_chat_file(write_source(tmp_path, rows, tools, complete), WHOLE_SHARD, StagingView(tmp_path / "out"))
    return pq.ParquetFile(tmp_path / "out" / "data" / "x.parquet").read().to_pylist()


def stated_messages(row: Row) -> list[Row]:
    """Return the messages of a row without null values."""
    return [{name: value for name, value in message.items() if value is not None} for message in row["messages"]]


def normalised_row(*messages: Row, **columns: object) -> Row:
    [row] = normalised({"uuid": "a", "messages": [*messages], **columns}).batch.to_pylist()
    return dict(row)


def calls(*arguments: str) -> list[Row]:
    return [
        {"id": f"call{number:05d}", "type": "function", "function": {"name": "lookup", "arguments": call_arguments}}
        for number, call_arguments in enumerate(arguments)
    ]


def test_reasoning_calls_and_answer_are_parts_of_messages(tmp_path: Path) -> None:
    [row] = export(tmp_path, [talk("a", "four")])

    assert stated_messages(row) == [
        {"role": "user", "content": "2 + 2?"},
        {"role": "assistant", "content": "", "thinking": "think of four", "tool_calls": calls('{"word": "2 + 2"}')},
        {"role": "tool", "content": "4", "name": "lookup", "tool_call_id": "call00000"},
        {"role": "assistant", "content": "four"},
    ]
    counted = [[part for part, counts in flags.items() if counts] for flags in row["loss"]]
    assert counted == [[], ["thinking", "tool_calls"], [], ["content"]]


def test_tools_are_moved_from_the_text_to_a_column(tmp_path: Path) -> None:
    source = normalised_row({"role": "system", "content": "Be kind."}, QUESTION, ANSWER, tools=[LOOKUP])

    [row] = export(tmp_path, [source], {source["source_tools_id"]: [LOOKUP]})

    assert stated_messages(row)[0] == {"role": "system", "content": "Be kind."}
    assert json.loads(row["tools"]) == [LOOKUP]


@pytest.mark.parametrize("later", ["Be brief.\n\n", "Never write\n# Tools\n\n## functions\n\nagain. Be brief."])
def test_later_instructions_of_a_row_with_tools_are_complete(tmp_path: Path, later: str) -> None:
    first = "Write # Tools\n\n## functions\n\nfirst.\n\n"
    messages = [{"role": "system", "content": text} for text in (first, later)]
    source = normalised_row(*messages, QUESTION, ANSWER, tools=[LOOKUP])

    [row] = export(tmp_path, [source], {source["source_tools_id"]: [LOOKUP]})

    assert stated_messages(row)[:2] == messages


def test_unlisted_tools_remain_in_the_system_message_unless_their_list_may_be_remote(tmp_path: Path) -> None:
    source = normalised_row(QUESTION, ANSWER, tools=[LOOKUP])

    [row] = export(tmp_path, [source])

    assert row["tools"] is None
    assert stated_messages(row)[0]["content"].startswith("# Tools\n\n## functions\n\nnamespace functions {")
    (tmp_path / "remote").mkdir()
    with pytest.raises(InputError, match="the tools of row a are not in the data root; pull the normalized rows"):
        export(tmp_path / "remote", [source], complete=False)


def test_the_system_message_of_harmony_is_a_column(tmp_path: Path) -> None:
    answer = "<|start|>assistant<|channel|>final<|message|>4<|return|>"
    source = normalised_row(QUESTION, ANSWER)
    text = f"{SYSTEM}<|start|>user<|message|>2 + 2?<|end|>{answer}"

    [row] = export(tmp_path, [{**source, "text": text, "template": "harmony/1"}])

    assert row["harmony_system"] == "You are ChatGPT."
    assert stated_messages(row) == [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]


def test_plain_texts_keep_their_system_message(tmp_path: Path) -> None:
    text = f"{SYSTEM}<|start|>user<|message|>2 + 2?<|end|><|start|>assistant<|message|>4<|end|>"

    [row] = export(tmp_path, [{**talk("a"), "text": text, "template": "plain/1"}])

    assert row["harmony_system"] is None
    assert [message["role"] for message in stated_messages(row)] == ["system", "user", "assistant"]


def test_replies_name_their_calls_in_order_for_each_tool() -> None:
    calls_of_two = called('{"word": "a"}', '{"word": "b"}')
    parsed = parse_harmony(normalised_row(QUESTION, calls_of_two, reply("1"), reply("2"), ANSWER)["text"])

    chats, _ = chat_messages(parsed, frozenset(), omits_tools=False, skips_system=False)

    assert chats[1]["tool_calls"] == calls('{"word": "a"}', '{"word": "b"}')
    assert [chat["tool_call_id"] for chat in chats] == [None, None, "call00000", "call00001", None]


def test_no_body_is_lost_and_each_has_its_part_of_the_loss() -> None:
    """Analysis, a preamble, two calls and two answers in a row."""
    head, end = "<|start|>assistant<|channel|>", "<|end|>"
    text = (
        "<|start|>user<|message|>q<|end|>"
        f"{head}analysis<|message|>t1{end}{head}commentary<|message|>preamble{end}"
        "<|start|>assistant to=functions.f<|channel|>commentary<|message|>{}<|call|>"
        f"{head}analysis<|message|>t2{end}{head}analysis<|message|>t3{end}{head}final<|message|>{end}"
        f"{head}final<|message|>a2<|return|>"
    )
    parsed = parse_harmony(text)
    counting = frozenset(loss_message_indexes(parsed, row_loss_mode(None, "assistant_all/1 analysis=false calls=true")))

    chats, loss = chat_messages(parsed, counting, omits_tools=False, skips_system=False)

    call = {"id": "call00000", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    parts = [(chat["thinking"], chat["content"], chat["tool_calls"]) for chat in chats[1:]]
    assert parts == [("t1", "preamble", [call]), ("t2", "", None), ("t3", "", None), (None, "a2", None)]
    counted = [[part for part, counts in flags.items() if counts] for flags in loss]
    assert counted == [[], ["content", "tool_calls"], [], ["content"], ["content"]]


@pytest.mark.parametrize(
    ("texts", "counts"),
    [([], {"rows": 1, "documents": 1}), (["no Harmony", None], {"rows": 3, "documents": 1, "dropped/not_harmony": 2})],
)
def test_texts_that_are_not_harmony_are_dropped_with_their_reason(
    texts: list[str | None], counts: dict[str, int], tmp_path: Path
) -> None:
    source = write_source(tmp_path, [talk("a"), *({**talk("b"), "text": text} for text in texts)])

    [receipt] = run_stage("messages", write_chat_file, [source], StagingView(tmp_path / "out"), INLINE)

    assert receipt.counts == counts


def test_an_unknown_loss_rule_names_its_row(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"x.parquet row a: loss_rule is 'all/9', none of: .*; normalize the rows again"
    ):
        export(tmp_path, [{**talk("a"), "loss_rule": "all/9"}])
