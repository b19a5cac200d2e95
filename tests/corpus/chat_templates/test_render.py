"""Rows rendered by chat templates, with the text that counts in the loss."""

import cProfile
from pathlib import Path
from typing import Any

import pytest
from chat_models import FAMILIES, save_chat_model
from nemotron_rows import ORIGIN
from rendered_chats import ALL, DAY, LOOKUP, QUESTION, TALK, Load, chat, rendered
from seeded_chats import TOOLS

from pipeline_assets.corpus.chat_templates.marked_text import encode_row, format_loss_rule, parse_row
from pipeline_assets.corpus.chat_templates.template import ChatTemplate, ChatTemplateFiles, load_template
from pipeline_assets.corpus.harmony.encode import loss_message_indexes
from pipeline_assets.corpus.harmony.message import Message, Role
from pipeline_assets.corpus.harmony.parse import ParsedMessage, ParsedText, Span
from pipeline_assets.corpus.nemotron.normalise_rows import normalise_rows
from pipeline_assets.corpus.nemotron.rows_recipe import RowsRecipe


def masked(row: dict[str, Any], template: ChatTemplate, **settings: Any) -> list[str]:
    """Return the runs of text that count in the loss, as the stored row gives them."""
    text = rendered(row, template, **settings)
    mode = loss_message_indexes(text.parsed, ALL)
    parsed, stored = parse_row(text.parsed.text, text.template, None, format_loss_rule(text.parsed, mode))
    tokens = encode_row(parsed, text.template, stored, template.tokenizer)
    return [
        template.tokenizer.decode(tokens.ids[start:stop])
        for start, stop in tokens.bodies[loss_message_indexes(parsed, stored)].tolist()
    ]


MASKS = {
    "chatml": ['<tool_call>{"name": "lookup", "arguments": {"limit": 3, "word": "x y"}}</tool_call>', "It is four."],
    "llama": ['{"name": "lookup", "parameters": {"limit": 3, "word": "x y"}}', "It is four."],
    "qwen": ["I look it up.", '{"name": "lookup", "arguments": {"limit": 3, "word": "x y"}}', "Four.", "It is four."],
    "nemotron": [
        *("I look it up.", "<parameter=limit>\n3\n</parameter>\n<parameter=word>\nx y", "Four.", "It is four.")
    ],
    "gpt_oss": ['{"limit": 3, "word": "x y"}', "Four.", "It is four."],
}


@pytest.mark.parametrize("name", FAMILIES)
def test_output_of_the_model_counts_in_the_loss(name: str, family: Load) -> None:
    runs = masked(chat(*TALK, tools=TOOLS), family(name))

    assert [text.rstrip("\n") for text in runs] == MASKS[name]


def test_a_template_may_drop_reasoning_of_earlier_turns(family: Load) -> None:
    answer = {"role": "assistant", "content": "4", "reasoning_content": "Easy."}

    assert masked(chat(QUESTION, answer, QUESTION, answer), family("qwen")) == ["4", "Easy.", "4"]


@pytest.mark.parametrize("header", ["assistant", "assistant<|channel|>notes"])
def test_a_message_of_a_text_column_counts_without_a_channel_of_harmony(header: str, family: Load) -> None:
    text = f"<|start|>user<|message|>2 + 2?<|end|><|start|>{header}<|message|>It is four.<|end|>"

    assert masked({"text": text}, family("chatml")) == ["It is four."]


def test_a_call_of_a_text_column_counts_without_a_channel(family: Load) -> None:
    call = '<|start|>assistant to=functions.lookup<|message|>{"word": "x"}<|call|>'
    text = f"<|start|>user<|message|>2 + 2?<|end|>{call}"

    assert masked({"text": text}, family("chatml")) == [
        '<tool_call>{"name": "lookup", "arguments": {"word": "x"}}</tool_call>'
    ]


def test_a_name_of_the_assistant_in_a_text_column_is_not_read_as_a_called_tool(family: Load) -> None:
    answer = "<|start|>assistant:bob<|channel|>final<|message|>4<|return|>"
    text = rendered({"text": f"<|start|>user<|message|>2 + 2?<|end|>{answer}"}, family("chatml"))

    parsed, _ = parse_row(text.parsed.text, text.template, None, format_loss_rule(text.parsed, [1]))

    assert [message.is_call for message in parsed.conversation] == [False, False]


def test_name_that_resembles_a_span_is_read_back() -> None:
    message = Message(Role.USER, "two words", 'ann@1-2:"')
    text = ParsedText("<two>", (ParsedMessage(message, None, Span(0, 4), Span(1, 4)),), None, b"<two>")

    parsed, _ = parse_row(text.text, "chat/a sha", None, format_loss_rule(text, []))

    assert parsed.conversation == [message]


TRAINED = {4: ["Four.", "It is four."], 2: MASKS["qwen"][:2], 0: []}


def test_later_instructions_of_a_row_with_tools_are_complete(family: Load) -> None:
    later = {"role": "system", "content": "Never write\n# Tools\n\n## functions\n\nagain. Be brief.\n\n"}

    text = rendered(chat(*TALK[:2], later, *TALK[2:], tools=TOOLS), family("chatml")).parsed.text

    assert f"<|im_start|>system\n{later['content']}<|im_end|>" in text


@pytest.mark.parametrize("turn", TRAINED)
def test_train_turns_of_a_row_narrow_its_mask(turn: int, family: Load) -> None:
    turns = [number == turn for number in range(len(TALK))]
    text = rendered(chat(*TALK, tools=TOOLS, metadata={"train_turns": turns}), family("qwen"))

    bodies = [text.parsed.messages[number].body for number in loss_message_indexes(text.parsed, text.loss_mode)]

    assert [text.parsed.text[slice(*body)].strip() for body in bodies] == [run.strip() for run in TRAINED[turn]]


TWO_CALLS = [
    QUESTION,
    {"role": "assistant", "content": None, "tool_calls": [LOOKUP, {"id": "b", "function": {"name": "fetch"}}]},
    {"role": "tool", "content": "first", "tool_call_id": "a"},
    {"role": "tool", "content": "second", "tool_call_id": "b"},
]


def test_completion_is_nonempty_if_the_source_trains_an_assistant_turn(family: Load) -> None:
    talk = [*TWO_CALLS, TALK[-1]]
    masks = {"calls": {1}, "answer": {4}, "question": {0}, "none": set[int]()}
    rows = [
        chat(*talk, uuid=name, tools=TOOLS, metadata={"train_turns": [number in trained for number in range(5)]})
        for name, trained in masks.items()
    ]
    rows += [chat(*talk, uuid="whole", tools=TOOLS), chat(*talk[:-1], uuid="unanswered", tools=TOOLS)]

    for family_name in ("qwen", "chatml"):
        rules = RowsRecipe.from_mapping({"template": {"path": "."}}, "the test")
        normalised = normalise_rows(list(enumerate(rows)), rules, ORIGIN, family(family_name)).batch.to_pylist()

        assert [row["id"] for row in normalised if row["quality_completion_nonempty"]] == ["calls", "answer", "whole"]
        assert len(normalised) == len(rows)


def test_calls_are_written_one_by_one_if_the_template_cannot_write_several(family: Load) -> None:
    text = rendered(chat(*TWO_CALLS, tools=TOOLS), family("gpt_oss")).parsed

    assert [(str(message.role), message.content) for message in text.conversation[1:]] == [
        ("assistant", '{"limit": 3, "word": "x y"}'),
        ("tool", "first"),
        ("assistant", "{}"),
        ("tool", "second"),
    ]


def parallel_calls(*replies: str) -> dict[str, Any]:
    """Build a row with two calls of one tool, `x` and `y`, and ordered replies."""
    calls = [{"id": key, "function": {"name": "lookup", "arguments": {"word": key}}} for key in ("x", "y")]
    answers = [{"role": "tool", "tool_call_id": key, "content": f"found {key}"} for key in replies]
    answer = {"role": "assistant", "content": "Done."}
    return chat(QUESTION, {"role": "assistant", "content": None, "tool_calls": calls}, *answers, answer, tools=TOOLS)


CALLS = {
    ("x", "y"): ['{"word": "x"}', "found x", '{"word": "y"}', "found y", "Done."],
    ("y", "x"): ['{"word": "x"}', "found x", '{"word": "y"}', "found y", "Done."],
    ("y",): ['{"word": "x"}', '{"word": "y"}', "found y", "Done."],
}


@pytest.mark.parametrize("replies", CALLS)
def test_calls_that_are_written_one_by_one_get_their_own_replies(replies: tuple[str, ...], family: Load) -> None:
    text = rendered(parallel_calls(*replies), family("llama")).parsed

    assert [message.content for message in text.conversation[1:]] == CALLS[replies]


def test_rendering_takes_linear_time_in_the_number_of_calls(family: Load) -> None:
    template, steps = family("chatml"), list[int]()
    for call_count in (100, 100, 400):  # the first one fills caches
        calls = [LOOKUP | {"id": str(number)} for number in range(call_count)]
        replies = [{"role": "tool", "tool_call_id": call["id"], "content": "four"} for call in calls]
        row = chat(QUESTION, {"role": "assistant", "content": None, "tool_calls": calls}, *replies, TALK[-1])
        profile = cProfile.Profile()
        profile.runcall(rendered, row, template)
        steps.append(sum(entry.callcount for entry in profile.getstats()))

    assert steps[2] < 4.5 * steps[1]


def test_a_template_that_writes_ids_gives_each_reply_the_id_of_its_call(tmp_path: Path) -> None:
    folder = save_chat_model(tmp_path / "model", "chatml")
    source = (
        "{% for m in messages %}{% for call in m.tool_calls or [] %}"
        "{% if call.id | length != 9 %}{{ raise_exception('not as Mistral demands') }}{% endif %}"
        "{{ call.id }} {{ call.function.arguments | tojson }}\n"
        "{% endfor %}{{ m.tool_call_id }} {{ m.content }}\n{% endfor %}"
    )
    (folder / "chat_template.jinja").write_text(source)

    text = rendered(parallel_calls("y", "x"), load_template(ChatTemplateFiles(folder, "own", DAY))).parsed.text

    calls = ['call00000 {"word": "x"}', 'call00001 {"word": "y"}']
    lines = [*calls, "", "call00001 found y", "call00000 found x", "Done.", ""]
    assert [line.strip() for line in text.split("\n")][1:] == lines
