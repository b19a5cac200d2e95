"""Rows in the forms of newer datasets equal rows in the form of the first ones."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nemotron_rows import (
    ANSWER,
    LOOKUP,
    QUESTION,
    as_text,
    build_split,
    called,
    dropped_by,
    normalised,
    reason_for,
    reply,
    rows_recipe,
    to_row,
)

from pipeline_assets.corpus.formats.jsonl_zst import read_structs
from pipeline_assets.corpus.harmony.encode import AssistantLast, loss_spans, row_loss_mode
from pipeline_assets.corpus.harmony.parse import parse_harmony
from pipeline_assets.corpus.readers.source_folder import SourceFile
from pipeline_assets.spine.rejects import Reject

THOUGHT = {**ANSWER, "reasoning_content": "Add them."}
CONVERSATION = [{"role": "system", "content": "Be brief."}, QUESTION, called({"word": "sum"}), reply("four"), THOUGHT]
ROW = {"messages": CONVERSATION, "tools": [LOOKUP]}
ABOUT, SCHEMA = {"description": "Looks a word up."}, LOOKUP["function"]["parameters"]


@pytest.mark.parametrize(
    "changes",
    [
        {"messages": as_text(CONVERSATION)},
        {"messages": json.dumps(CONVERSATION)},
        {"messages": json.dumps(as_text(CONVERSATION))},
        {"tools": json.dumps([LOOKUP])},
        {"tools": [{"id": "lookup", **ABOUT, "inputSchema": {"jsonSchema": SCHEMA}}]},
        {"tools": [{"name": "lookup", **ABOUT, "inputSchema": SCHEMA}]},
    ],
    ids=["items", "column", "both", "tools", "inputSchema.jsonSchema", "inputSchema"],
)
def test_a_row_in_another_form_is_the_same_row(changes: dict[str, Any]) -> None:
    assert to_row(ROW | changes) == to_row(ROW)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5), st.lists, max_leaves=4
)
WORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=9).filter(lambda word: "<|" not in word)


@given(st.lists(st.tuples(WORDS, st.dictionaries(WORDS, JSON, max_size=2), WORDS), max_size=3))
def test_conversations_as_text_equal_conversations_as_objects(turns: list[tuple[str, dict[str, object], str]]) -> None:
    conversation = [QUESTION]
    for question, arguments, answer in turns:
        conversation += [called(arguments), reply(answer), {"role": "user", "content": question}]

    assert to_row({"messages": as_text(conversation)}) == to_row({"messages": conversation})


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"messages": "no JSON"}, "wrong_type"),
        ({"messages": '{"role": "user"}'}, "wrong_type"),
        ({"messages": [QUESTION, "no JSON"]}, "malformed_message"),
        ({"messages": [QUESTION, "[]"]}, "malformed_message"),
        ({"messages": [QUESTION, '{"role": "user", "content": "\\ud800"}']}, "malformed_message"),
        ({"messages": [QUESTION, {"role": "assistant", "tool_calls": "no JSON"}]}, "malformed_tool_call"),
        ({"messages": [QUESTION, {"role": "assistant", "tool_calls": "7"}]}, "malformed_tool_call"),
        ({"messages": [QUESTION, {"role": "assistant", "tool_calls": "[" * 9999}]}, "nested_too_deep"),
        ({"messages": [json.dumps(QUESTION | {"content": json.loads("[" * 70 + "]" * 70)})]}, "nested_too_deep"),
        ({"tools": [{"inputSchema": {}}]}, "malformed_tools"),
    ],
)
def test_unreadable_text_is_a_reject(changes: dict[str, Any], reason: str) -> None:
    assert reason_for(ROW | changes) == reason


def test_a_line_that_is_not_json_is_a_reject_with_its_byte_offset(tmp_path: Path) -> None:
    lines = [json.dumps({"uuid": name, "messages": [QUESTION, ANSWER]}) for name in "ab"]
    path = tmp_path / "tool_calling.jsonl"
    path.write_text(f"{lines[0]}\n{{'uuid'\n{lines[1]}\n")

    artifact = build_split(tmp_path, [SourceFile(path, path.name, path.stat().st_size)])

    assert artifact.manifest.identity.ledger.rejected == {"not_json": 1}
    [reject] = read_structs(artifact.path("rejects.jsonl.zst"), Reject)
    assert (reject.file, reject.row, reject.reason) == ("tool_calling.jsonl", len(lines[0]) + 1, "not_json")


# Reasoning labels


@pytest.mark.parametrize(
    ("kwargs", "own", "label", "rest", "unread"),
    [
        ({"thinking": True}, None, "on", None, []),
        ({"enable_thinking": False}, None, "off", None, []),
        ('{"enable_thinking": false, "budget": 9}', None, "off", {"budget": 9}, []),
        ({"thinking": False, "enable_thinking": False}, "off", "off", None, []),
        ({"thinking": True, "enable_thinking": False}, None, None, "kept", ["thinking", "enable_thinking"]),
        ({"thinking": True}, "off", "off", "kept", ["thinking"]),
        ({"thinking": "yes"}, None, None, "kept", ["thinking"]),
        ({"thinking": 1}, None, None, "kept", ["thinking"]),
        ({"thinking": None, "budget": 9}, None, None, "kept", []),
        ("no JSON", None, None, "kept", []),
        ([True], "on", "on", "kept", []),
    ],
)
def test_a_reasoning_switch_is_the_label_unless_it_contradicts(
    kwargs: object, own: str | None, label: str | None, rest: object, unread: list[str]
) -> None:
    result = normalised({"messages": [QUESTION, ANSWER], "chat_template_kwargs": kwargs, "reasoning": own})

    [row] = result.batch.to_pylist()
    kept = kwargs if rest == "kept" else rest
    assert row["meta_reasoning"] == label
    assert json.loads(row["meta_source_json"] or "{}") == ({} if kept is None else {"chat_template_kwargs": kept})
    names = [name for name in result.counts if name.startswith("unread_message_keys/")]
    assert names == [f"unread_message_keys/chat_template_kwargs.{key}" for key in unread]


# The source's own loss mask


def row_with_train_turns(*turns: object, messages: list[dict[str, Any]] = CONVERSATION, **more: Any) -> dict[str, Any]:
    return {"messages": messages, "tools": [LOOKUP], "metadata": {"train_turns": [*turns]}, **more}


@pytest.mark.parametrize(
    ("row", "rule", "completion"),
    [
        (row_with_train_turns(False, False, True, False, True), "2,4,5", '{"word": "sum"}|Add them.|4'),
        (row_with_train_turns(False, False, False, False, True), "4,5", "Add them.|4"),
        (row_with_train_turns(False, False, True, False, False), "2", '{"word": "sum"}'),
        (row_with_train_turns(False, False, False, False, False), "", ""),
    ],
)
def test_train_turns_of_a_source_become_the_loss_rule(row: dict[str, Any], rule: str, completion: str) -> None:
    result = normalised(row, row | {"metadata": json.dumps(row["metadata"])})

    for values in result.batch.to_pylist():
        assert (values["loss_mode"], values["loss_rule"]) == ("assistant_turns", f"assistant_turns/1 messages={rule}")
        assert loss_text(values) == completion
        assert values["quality_completion_nonempty"] is bool(rule)
        assert "train_turns" in values["meta_eval_json"]
    assert result.counts["train_turns"] == 2


def loss_text(row: dict[str, Any]) -> str:
    spans = loss_spans(parse_harmony(row["text"]), row_loss_mode(row["loss_mode"], row["loss_rule"]))
    return "|".join(row["text"][start:stop] for start, stop in spans)


def test_the_loss_of_the_recipe_narrows_the_loss_of_the_source() -> None:
    row = row_with_train_turns(False, False, True, False, True)

    assert loss_text(to_row(row, rows_recipe(loss={"mode": "assistant_all", "analysis": False}))) == '{"word": "sum"}|4'
    assert loss_text(to_row(row, rows_recipe(loss=AssistantLast()))) == "4"
    assert loss_text(to_row(row, rows_recipe(analysis="drop"))) == '{"word": "sum"}|4'  # numbers move with the text
    assert to_row(row, rows_recipe(analysis="drop"))["loss_rule"] == "assistant_turns/1 messages=2,4"


def test_train_turns_of_other_roles_are_counted_by_role() -> None:
    counts = normalised(row_with_train_turns(True, True, True, True, True)).counts

    assert {name: count for name, count in counts.items() if "train_turns" in name} == {
        "train_turns": 1,
        "unread_message_keys/system.train_turns": 1,
        "unread_message_keys/user.train_turns": 1,
        "unread_message_keys/tool.train_turns": 1,
    }


@pytest.mark.parametrize("turns", [[], [True] * 4, [True] * 6, [1, 1, 1, 1, 1], [None] * 5, ["true"] * 5])
def test_train_turns_must_be_one_boolean_per_message(turns: list[object]) -> None:
    [reject] = normalised(row_with_train_turns(*turns)).rejects

    assert (reject.reason, reject.row) == ("malformed_train_turns", 0)
    assert reject.detail.startswith("expected a boolean for each of 5 messages, got [")


@pytest.mark.parametrize("turns", [{"a": True}, "yes", True])
def test_train_turns_must_be_a_list(turns: object) -> None:
    assert reason_for({"messages": CONVERSATION, "metadata": {"train_turns": turns}}) == "malformed_train_turns"


def test_train_turns_of_a_text_row_select_its_messages() -> None:
    text = "<|start|>user<|message|>Q<|end|><|start|>assistant<|message|>A<|end|><|start|>assistant<|message|>B<|end|>"

    assert loss_text(to_row({"text": text, "metadata": {"train_turns": [False, True, False]}})) == "A"
    assert reason_for({"text": text, "metadata": {"train_turns": [True]}}) == "malformed_train_turns"


# Prompts that ask for other blocks


@pytest.mark.parametrize(
    ("prompt", "answer", "count"),
    [
        ("Fix it. Think in <think> blocks, then write <solution>.", THOUGHT, 1),
        ("Fix it. Think in <think> blocks, then write <solution>.", ANSWER, 0),
        ("Fix it in <think> and <solution>.", THOUGHT | {"content": "<think>a</think>4"}, 0),
        ("What do <think> and <solution> mean? " + "x" * 500, THOUGHT, 0),
        ("Write <solution>.", THOUGHT, 0),
        ("What does <think> mean?", THOUGHT, 0),
    ],
)
def test_reasoning_against_the_requested_blocks_is_counted(prompt: str, answer: dict[str, str], count: int) -> None:
    result = normalised({"messages": [{"role": "user", "content": prompt}, answer]})

    assert result.counts["think_tags/contradicted"] == count
    assert result.batch.num_rows == 1


# LaTeX after a control character


@pytest.mark.parametrize(
    ("spoiled", "restored"),
    [
        ("\boxed{4}", r"\boxed{4}"),
        ("\begin{a} \beta \binom{n}{k}", r"\begin{a} \beta \binom{n}{k}"),
        ("\frac12 \forall x", r"\frac12 \forall x"),
        ("\times 3, \text{if} \theta", r"\times 3, \text{if} \theta"),
        ("\boxedx \b \bxed \facts \ttimes \text \to \tan", None),
        ("a\tbox\tframe\ttext{}", None),
        (r"\boxed", None),
    ],
)
def test_known_latex_commands_are_restored_only_on_request(spoiled: str, restored: str | None) -> None:
    row = {"uuid": "a", "messages": [{"role": "user", "content": spoiled}, {**ANSWER, "reasoning_content": spoiled}]}
    restoring = normalised(row, settings=rows_recipe(restore_latex=True))
    expected = to_row(row)["text"].replace(spoiled, restored or spoiled)

    assert spoiled in to_row(row)["text"]
    assert restoring.batch.column("text")[0].as_py() == expected
    assert restoring.counts["latex_restored"] == (2 * restored.count("\\") if restored else 0)
    assert "latex_restored" not in normalised(row).counts


def test_arguments_of_calls_are_not_restored() -> None:
    row = {"messages": [QUESTION, called({"word": "\boxed"}), reply("\boxed"), ANSWER], "tools": [LOOKUP]}

    text = to_row(row, rows_recipe(restore_latex=True))["text"]

    assert r"""{"word": "\boxed"}""" in text  # JSON's escape of U+0008, unchanged
    assert r"<|message|>\boxed<|end|>" in text


# Parquet


def test_every_form_gives_the_same_row_from_parquet(tmp_path: Path) -> None:
    first = {
        "uuid": "1",
        "messages": as_text(CONVERSATION),
        "tools": json.dumps([LOOKUP]),
        "chat_template_kwargs": {"thinking": True},
        "metadata": {"train_turns": [False, False, False, False, True], "seed_prompt_sha256": None},
    }
    second = {
        "uuid": None,
        "messages": as_text([QUESTION, ANSWER]),
        "tools": None,
        "chat_template_kwargs": {"thinking": False},
        "metadata": {"train_turns": [False, True], "seed_prompt_sha256": "ab"},
    }
    without_null = [{key: value for key, value in row.items() if value is not None} for row in (first, second)]
    (tmp_path / "lines").mkdir()
    lines = tmp_path / "lines" / "train.jsonl"
    lines.write_text("".join(f"{json.dumps(row)}\n" for row in without_null))
    pq.write_table(pa.Table.from_pylist([first, second]), tmp_path / "train.parquet")

    splits = [
        build_split(root, [SourceFile(path, path.name, path.stat().st_size)])
        for root, path in ((tmp_path / "a", lines), (tmp_path / "b", tmp_path / "train.parquet"))
    ]

    places = dict(source_file=None, source_row=None, meta_eval_json=None)
    as_lines, as_parquet = (
        [row | places for path in sorted(split.folder.glob("data/*")) for row in pq.read_table(path).to_pylist()]
        for split in splits
    )
    assert as_lines == as_parquet
    assert [row["loss_rule"] for row in as_lines] == ["assistant_turns/1 messages=4,5", "assistant_turns/1 messages=1"]


# Withheld prompts


BLANK_PROMPTS: list[dict[str, Any]] = [
    {},
    *({"content": content} for content in (None, "", [], " \n", [{"type": "text", "text": ""}])),
    {"content": [{"type": "text", "text": " "}, {"type": "text", "text": None}]},
]


@pytest.mark.parametrize("blank", BLANK_PROMPTS, ids=str)
def test_a_row_whose_first_prompt_is_withheld_is_dropped_with_its_sha256(blank: dict[str, Any]) -> None:
    row = {"messages": [{"role": "user"} | blank, ANSWER], "metadata": {"seed_prompt_sha256": "AB12"}}

    assert dropped_by(row, rows_recipe()) == ("prompt_withheld", "no seed set has the prompt with sha256 ab12")


def test_an_empty_prompt_without_a_sha256_is_not_withheld() -> None:
    assert reason_for({"messages": [{"role": "user"}, ANSWER]}) == "malformed_message"
    assert to_row({"messages": [{"role": "user", "content": ""}, ANSWER]})["quality_empty_messages"] == 1
    for content in ("2 + 2?", [{"type": "text", "text": ""}, {"type": "text", "text": "2 + 2?"}]):
        row = {"messages": [{"role": "user", "content": content}, ANSWER], "metadata": {"seed_prompt_sha256": "ab"}}
        assert "2 + 2?" in to_row(row)["text"]


def test_a_blank_prompt_with_a_media_part_is_a_reject() -> None:
    part = {"type": "text", "text": "", "image_url": {"url": "a"}}
    row = {"messages": [{"role": "user", "content": [part]}, ANSWER], "metadata": {"seed_prompt_sha256": "ab"}}

    assert reason_for(row) == "malformed_message"
