"""Rows rendered by chat templates: text and ids of transformers, proved masks."""

import functools
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from chat_models import FAMILIES, save_chat_model
from nemotron_rows import ORIGIN
from real_samples import sample, some
from seeded_chats import TOOLS, seeded_row

from pipeline_assets.corpus.chat_templates.marked_text import encode_row, format_loss_rule, parse_row
from pipeline_assets.corpus.chat_templates.template import ChatTemplate, ChatTemplateFiles, load_template
from pipeline_assets.corpus.harmony.encode import AssistantAll, loss_message_indexes
from pipeline_assets.corpus.harmony.message import Refusal, Role
from pipeline_assets.corpus.nemotron.normalise_rows import normalise_rows
from pipeline_assets.corpus.nemotron.rows_recipe import RowsRecipe
from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.systems.nemotron import NemotronRecipe
from tests.corpus.chat_templates.conftest import DAY, rendered

Load = Callable[..., ChatTemplate]
ALL = AssistantAll(analysis=True, calls=True)
QUESTION = {"role": "user", "content": "2 + 2?"}
LOOKUP = {"id": "a", "type": "function", "function": {"name": "lookup", "arguments": {"word": "x y", "limit": 3}}}
TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is it?"},
    {"role": "assistant", "content": "", "reasoning_content": "I look it up.", "tool_calls": [LOOKUP]},
    {"role": "tool", "content": "four", "tool_call_id": "a"},
    {"role": "assistant", "content": "It is four.", "reasoning_content": "Four."},
]


def chat(*messages: dict[str, Any], **columns: Any) -> dict[str, Any]:
    return {"messages": [*messages], **columns}


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
    "qwen": [
        "I look it up.\n",
        '{"name": "lookup", "arguments": {"limit": 3, "word": "x y"}}\n',
        "Four.\n",
        "It is four.",
    ],
    "nemotron": [
        "I look it up.\n",
        "<parameter=limit>\n3\n</parameter>\n<parameter=word>\nx y\n",
        "Four.\n",
        "It is four.",
    ],
    "gpt_oss": ['{"limit": 3, "word": "x y"}', "Four.", "It is four."],
}


@pytest.mark.parametrize("name", FAMILIES)
def test_output_of_the_model_counts_in_the_loss(name: str, family: Load) -> None:
    assert [text.rstrip("\n") for text in masked(chat(*TALK, tools=TOOLS), family(name))] == [
        text.rstrip("\n") for text in MASKS[name]
    ]


def test_a_template_may_drop_reasoning_of_earlier_turns(family: Load) -> None:
    answer = {"role": "assistant", "content": "4", "reasoning_content": "Easy."}

    assert masked(chat(QUESTION, answer, QUESTION, answer), family("qwen")) == ["4", "Easy.", "4"]


TRAINED = {4: ["Four.", "It is four."], 2: MASKS["qwen"][:2], 0: []}


@pytest.mark.parametrize("turn", TRAINED)
def test_train_turns_of_a_row_narrow_its_mask(turn: int, family: Load) -> None:
    turns = [number == turn for number in range(len(TALK))]
    text = rendered(chat(*TALK, tools=TOOLS, metadata={"train_turns": turns}), family("qwen"))

    bodies = [text.parsed.messages[number].body for number in loss_message_indexes(text.parsed, text.loss_mode)]

    assert [text.parsed.text[slice(*body)].strip() for body in bodies] == [run.strip() for run in TRAINED[turn]]


def test_completion_is_nonempty_if_the_source_trains_an_assistant_turn(family: Load) -> None:
    calls = [LOOKUP, {"id": "b", "type": "function", "function": {"name": "fetch", "arguments": {}}}]
    replies = [{"role": "tool", "content": word, "tool_call_id": key} for key, word in (("a", "x"), ("b", "y"))]
    talk = [QUESTION, {"role": "assistant", "content": None, "tool_calls": calls}, *replies, TALK[-1]]
    masks = {"calls": {1}, "answer": {4}, "question": {0}, "none": set[int]()}
    rows = [
        chat(*talk, uuid=name, tools=TOOLS, metadata={"train_turns": [number in trained for number in range(5)]})
        for name, trained in masks.items()
    ]
    rows += [chat(*talk, uuid="whole", tools=TOOLS), chat(*talk[:-1], uuid="unanswered", tools=TOOLS)]

    for family_name in ("qwen", "chatml"):
        rules = RowsRecipe.from_mapping({"template": {"path": "."}}, "the test")
        normalised = normalise_rows(list(enumerate(rows)), rules, ORIGIN, family(family_name)).batch.to_pylist()

        assert {row["id"]: row["quality_completion_nonempty"] for row in normalised} == {
            "calls": True,
            "answer": True,
            "question": False,
            "none": False,
            "whole": True,
            "unanswered": False,
        }


def test_calls_are_written_one_by_one_if_the_template_cannot_write_several(family: Load) -> None:
    calls = [LOOKUP, {"id": "b", "type": "function", "function": {"name": "fetch", "arguments": {}}}]
    replies = [
        {"role": "tool", "content": word, "tool_call_id": key} for key, word in (("a", "first"), ("b", "second"))
    ]
    row = chat(QUESTION, {"role": "assistant", "content": None, "tool_calls": calls}, *replies, tools=TOOLS)

    text = rendered(row, family("gpt_oss")).parsed

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


def test_a_template_that_writes_ids_gives_each_reply_the_id_of_its_call(tmp_path: Path) -> None:
    folder = save_chat_model(tmp_path / "model", "chatml")
    source = (
        "{% for m in messages %}{% for call in m.tool_calls or [] %}"
        "{{ call.id }} {{ call.function.arguments | tojson }}\n"
        "{% endfor %}{{ m.tool_call_id }} {{ m.content }}\n{% endfor %}"
    )
    (folder / "chat_template.jinja").write_text(source)

    text = rendered(parallel_calls("y", "x"), load_template(ChatTemplateFiles(folder, "own", DAY))).parsed.text

    lines = ['call_0 {"word": "x"}', 'call_1 {"word": "y"}', "", "call_1 found y", "call_0 found x", "Done.", ""]
    assert [line.strip() for line in text.split("\n")][1:] == lines


@pytest.mark.parametrize("word", [r"\u003c|im_end|\u003e", r"<|im_end|\u003e"])
def test_escaped_control_tokens_in_call_arguments_reject_the_row(word: str, family: Load) -> None:
    call = {"id": "a", "function": {"name": "lookup", "arguments": f'{{"word": "{word}"}}'}}

    with pytest.raises(Refusal) as refused:
        rendered(chat(QUESTION, {"role": "assistant", "content": None, "tool_calls": [call]}), family("qwen"))

    assert (refused.value.reason, refused.value.detail) == ("control_tokens_in_content", "<|im_end|>")


MARKS = {"Zq99Zq": "'Zq99Zq'", "Zq0aZq Zq0bZq Zq0cZq Zq0dZq": "'Zq0aZq Zq0bZq Zq0cZq Zq0dZq'"}


@pytest.mark.parametrize("mark", MARKS)
def test_tools_that_contain_a_mark_reject_the_row(mark: str, family: Load) -> None:
    tools = json.loads(json.dumps(TOOLS).replace("To fetch it.", mark))

    with pytest.raises(Refusal, match=f"mask_unproved: {MARKS[mark]} marks no message"):
        rendered(chat(QUESTION, {"role": "assistant", "content": "4"}, tools=tools), family("qwen"))


def test_harmony_rows_among_rows_of_a_chat_template_are_refused_in_one_line(family: Load) -> None:
    text = "<|start|>user<|message|>q<|end|><|start|>assistant<|message|>a<|end|>"
    parsed, mode = parse_row(text, "plain/1", "assistant_all", None)

    line = (
        "plain/1: these rows need a tokenizer with Harmony's control tokens; score and select them apart from rows of"
    )
    with pytest.raises(InputError, match=line):
        encode_row(parsed, "plain/1", mode, family("qwen").tokenizer)


@pytest.mark.parametrize("content", ["<|im_end|>", "say <think> now", "a<|im_start|>system\nb"])
def test_control_tokens_in_a_message_reject_the_row(content: str, family: Load) -> None:
    with pytest.raises(Refusal) as refused:
        rendered(chat({"role": "user", "content": content}, {"role": "assistant", "content": "no"}), family("qwen"))

    assert refused.value.reason == "control_tokens_in_content"


def test_control_tokens_in_tools_reject_the_row(family: Load) -> None:
    tools = json.loads(json.dumps(TOOLS).replace("To fetch it.", "<|im_end|>"))

    with pytest.raises(Refusal, match=r"<\|im_end\|> in the tools") as refused:
        rendered(chat(*TALK, tools=tools), family("qwen"))

    assert refused.value.reason == "control_tokens_in_content"


REFUSED = {
    "{{ messages[0].content }}": "mask_unproved: the template drops the text in message 1",
    "{% for m in messages %}{{ m.content | upper }}{% endfor %}": "mask_unproved: the template changes or repeats a",
    "{% for m in messages %}{{ m.content * 2 }}{% endfor %}": "mask_unproved: the template changes or repeats a",
    "{% for m in messages %}assist{{ m.content }}{% endfor %}": "mask_unproved: tokens do not end where the body does",
    "{{ raise_exception('no') }}": "template_failed: no",
    "{% if messages[1] %}{% for a in range(99999) %}{% endfor %}{% endif %}": "template_failed: the template takes too",
}


@pytest.mark.parametrize("source", REFUSED)
def test_row_without_a_proof_is_refused_with_its_reason(source: str, tmp_path: Path) -> None:
    folder = save_chat_model(tmp_path / "m", "chatml")
    (folder / "chat_template.jinja").write_text(source)
    template = load_template(ChatTemplateFiles(folder, f"test/{len(source)}", DAY))

    with pytest.raises(Refusal) as refused:
        rendered(chat({"role": "user", "content": "ask"}, {"role": "assistant", "content": "ant"}), template)

    assert str(refused.value).startswith(REFUSED[source])


RULES = {
    "": "expected spans/1",
    "spans/1": "expected spans/1",
    "spans/2 user@0-1": "expected spans/1",
    "spans/1 user@0-9": "'user@0-9'",
    "spans/1 user@0-2 user@1-3": "'user@1-3'",
    "spans/1 user@0-1*": "'user@0-1*'",
    "spans/1 critic@0-1": "'critic@0-1'",
}


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_that_does_not_fit_the_text_is_an_error(rule: str) -> None:
    with pytest.raises(ValueError, match="loss_rule") as refused:
        parse_row("four", "chat/a/b@c sha", None, rule)

    assert RULES[rule] in str(refused.value)


def test_variables_of_a_recipe_reach_the_template(tmp_path: Path) -> None:
    source = (
        "{{ mood }}{{ limit + 1 }}{{ is_long is true }}{% for m in messages %}<|im_start|>{{ m.content }}{% endfor %}"
    )
    folder = save_chat_model(tmp_path / "m", "chatml")
    (folder / "chat_template.jinja").write_text(source)
    variables = json.dumps({"mood": "calm", "limit": 3, "is_long": True})

    template = load_template(ChatTemplateFiles(folder, "v", DAY, variables))
    text = rendered(chat(QUESTION, {"role": "assistant", "content": "4"}), template)

    assert text.parsed.text == "calm4True<|im_start|>2 + 2?<|im_start|>4"


def test_special_tokens_are_read_where_transformers_reads_them(tmp_path: Path) -> None:
    turns = "{{ bos_token }}{{ unk_token }}{% for m in messages %}<|im_start|>{{ m.content }}{% endfor %}"
    folder = save_chat_model(tmp_path / "m", "chatml", unk_token="<unknown>")
    (folder / "chat_template.jinja").write_text(turns)
    (folder / "special_tokens_map.json").write_text('{"bos_token": {"content": "<|im_end|>"}}')
    row = chat(QUESTION, {"role": "assistant", "content": "4"})

    template = load_template(ChatTemplateFiles(folder, "legacy", DAY))
    text = rendered(row, template).parsed.text
    assert text == oracle(folder, row, template)[0] == "<|im_end|><unknown><|im_start|>2 + 2?<|im_start|>4"

    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"added_tokens_decoder": {}}))
    assert rendered(row, load_template(ChatTemplateFiles(folder, "new", DAY))).parsed.text.startswith(
        "<|im_start|><unknown>"
    )


VARIABLES = {
    "messages": ("x", "`variables` cannot set messages, which each row sets"),
    "limit": (1.5, "rows.template.variables.limit"),
    "names": (["a"], "rows.template.variables.names"),
}


@pytest.mark.parametrize("name", VARIABLES)
def test_variable_of_an_invalid_type_or_name_is_refused(name: str) -> None:
    value, message = VARIABLES[name]
    rows = {"template": {"path": ".", "variables": {name: value}}}

    with pytest.raises(UsageError) as refused:
        NemotronRecipe.from_mapping({"system": "nemotron", "name": "v", "rows": rows, "datasets": []}, "the test")

    assert message in str(refused.value)


def test_templates_are_read_where_transformers_reads_them(tmp_path: Path) -> None:
    listed = [{"name": "default", "template": "a"}, {"name": "tool_use", "template": "b"}]
    folder = save_chat_model(tmp_path / "m", "qwen", as_file=False, chat_template=listed)

    def sources(name: str) -> dict[str, str]:
        return dict(load_template(ChatTemplateFiles(folder, name, DAY)).sources)

    assert sources("listed") == {"default": "a", "tool_use": "b"}
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "rag.jinja").write_text("c")
    (folder / "chat_template.jinja").write_text("d")
    assert sources("files") == {"default": "d", "rag": "c"}


ERRORS = {
    "{% for %}": "the chat template is invalid: Expected an expression, got 'end of statement block'",
    "{{ strftime_now('%Y') }}": "the chat template writes the current date; set `rows.template.date`",
    "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}": "takes too many steps",
    "{{ 'a' | center(1000000000) }}": "needs more than 256 MiB for one row",
    "{{ messages | nothing }}": "the chat template is invalid: No filter named 'nothing'; use another model",
    "{% if messages[1:] %}{% include 'x' %}{% endif %}": "the chat template is invalid: line 1: a chat template cannot",
    None: "no chat template found",
}
FILES = {
    "a template that is a number": (
        "tokenizer_config.json",
        b'{"chat_template": 3}',
        "with names, got 3; use a folder",
    ),
    "a list of numbers": ("tokenizer_config.json", b'{"chat_template": [3]}', "with names, got [3]; use a folder"),
    "a template without its text": ("tokenizer_config.json", b'{"chat_template": [{"name": "a"}]}', 'got {"a": null};'),
    "a list as configuration": ("tokenizer_config.json", b"[1]", "json: expected a JSON object, got [1]; use a folder"),
    "half a configuration": ("tokenizer_config.json", b"{", "json: not valid JSON (Expecting property name"),
    "a template in Latin-1": ("chat_template.jinja", b"\xe9", "chat_template.jinja: not UTF-8 (byte 0); use a folder"),
}


def test_a_template_above_the_limit_stops_the_run_in_one_line(tmp_path: Path) -> None:
    folder = save_chat_model(tmp_path / "m", "qwen", as_file=False, chat_template="x" * ((1 << 20) + 1))

    with pytest.raises(InputError, match="the chat template is invalid: the template is longer than 1,048,576 char"):
        load_template(ChatTemplateFiles(folder, "test/long", None))


@pytest.mark.parametrize("source", ERRORS)
def test_an_unusable_template_stops_the_run_in_one_line(source: str | None, tmp_path: Path) -> None:
    folder = save_chat_model(tmp_path / "m", "qwen", as_file=False, chat_template=source)

    with pytest.raises(InputError) as refused:
        load_template(ChatTemplateFiles(folder, f"test/{source}", None))

    assert ERRORS[source] in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("case", FILES)
def test_file_of_the_wrong_form_is_an_error_that_names_it(case: str, tmp_path: Path) -> None:
    name, content, message = FILES[case]
    folder = save_chat_model(tmp_path / "m", "qwen", as_file=False)
    (folder / name).write_bytes(content)

    with pytest.raises(InputError) as refused:
        load_template(ChatTemplateFiles(folder, f"test/{case}", None))

    assert message in str(refused.value)
    assert str(folder) in str(refused.value)


def test_error_of_a_template_named_by_digest_has_its_folder(tmp_path: Path) -> None:
    folder = save_chat_model(tmp_path / "m", "qwen", as_file=False, chat_template="{{ strftime_now('%Y') }}")

    with pytest.raises(InputError) as refused:
        load_template(ChatTemplateFiles(folder, "sha256:0123456789abcdef", None))

    assert str(refused.value).startswith(f"{folder}: the chat template writes the current date; ")


def oracle(folder: Path, row: dict[str, Any], template: ChatTemplate) -> tuple[str, list[int]]:
    """Return text and ids of `apply_chat_template` for the messages of a row."""
    tokenizer = _tokenizer(folder)
    chats = [{key: value for key, value in message.items() if value is not None} for message in row["messages"]]
    for message in chats:
        message.setdefault("content", "")
        for call in message.get("tool_calls", ()):
            arguments = call["function"]["arguments"]
            # An object's keys are sorted, as in Harmony texts.
            text = arguments if isinstance(arguments, str) else json.dumps(arguments, sort_keys=True)
            call["function"]["arguments"] = json.loads(text)
    chats = [message for message in chats if message["role"] != "system" or message["content"]]
    apply = functools.partial(tokenizer.apply_chat_template, chats, tools=row.get("tools"))
    return apply(tokenize=False), apply(tokenize=True, return_dict=False)


@functools.cache
def _tokenizer(folder: Path) -> Any:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    return transformers.PreTrainedTokenizerFast.from_pretrained(folder)


def check(name: str, seeds: range, folder: Path) -> Counter[str]:
    """Count the rows that equal those of transformers and whose masks are proved."""
    template, counts = (
        load_template(ChatTemplateFiles(save_chat_model(folder, name), f"test/{name}", DAY)),
        Counter[str](),
    )
    for seed in seeds:
        row = seeded_row(seed)
        text = rendered(json.loads(json.dumps(row)), template)
        counting = [number for number, message in enumerate(text.parsed.conversation) if message.role is Role.ASSISTANT]
        parsed, stored = parse_row(text.parsed.text, text.template, None, format_loss_rule(text.parsed, counting))
        assert parsed.conversation == [turn._replace(content_type=None) for turn in _roles(text.parsed.conversation)]
        assert _contents(row) - Counter(_words(message.content) for message in parsed.conversation) <= _reasoning(row)
        assert text.tokens is not None
        for number in loss_message_indexes(parsed, stored):
            start, stop = text.tokens.bodies[number].tolist()
            body = parsed.messages[number].body
            assert template.tokenizer.decode(text.tokens.ids[start:stop]) == parsed.text[slice(*body)]
        several = any(len(message.get("tool_calls") or ()) > 1 for message in row["messages"])
        mixed = any(message.get("tool_calls") and message["content"] for message in row["messages"])
        if name not in ("llama", "gpt_oss") or not (several or mixed):
            before, (expected, ids) = _today(name), oracle(folder, json.loads(json.dumps(row)), template)
            if name in ("llama", "gpt_oss"):
                for today in (before, _today(name)):  # midnight may be between them
                    expected = expected.replace(today, "31 Jan 2026" if name == "llama" else DAY)
            assert text.parsed.text == expected
            assert name in ("llama", "gpt_oss") or text.tokens.ids.tolist() == ids
            counts["equal"] += 1
        counts["proved"] += 1
    return counts


def _today(name: str) -> str:
    import datetime

    return datetime.datetime.now().strftime("%d %b %Y" if name == "llama" else "%Y-%m-%d")


def _roles(messages: Any) -> list[Any]:
    return [turn._replace(recipient=None, channel=None) if turn.role is Role.TOOL else turn for turn in messages]


def _words(text: str) -> str:
    """Strip blanks and escapes from a text, to compare contents of rows."""
    return "".join(text.encode().decode("unicode_escape", errors="ignore").split())


def _contents(row: dict[str, Any]) -> Counter[str]:
    texts = [message["content"] for message in row["messages"] if message["role"] == "assistant" and message["content"]]
    return Counter(_words(text) for text in texts)


def _reasoning(row: dict[str, Any]) -> Counter[str]:
    return Counter(_words(message.get("reasoning_content") or "") for message in row["messages"])


@pytest.mark.parametrize("name", FAMILIES)
def test_synthetic_conversations_equal_transformers_and_their_masks_are_proved(name: str, tmp_path: Path) -> None:
    counts = check(name, range(25), tmp_path / name)

    assert counts["proved"] == 25
    assert counts["equal"] >= 15


@pytest.mark.proof
@pytest.mark.parametrize("name", FAMILIES)
def test_masks_of_a_thousand_conversations_are_proved(name: str, tmp_path: Path) -> None:
    assert check(name, range(25, 1025), tmp_path / name)["proved"] == 1000


@pytest.mark.real
@pytest.mark.parametrize("name", FAMILIES)
def test_masks_of_all_real_rows_are_proved(name: str, tmp_path: Path) -> None:
    template = load_template(ChatTemplateFiles(save_chat_model(tmp_path / name, name), f"test/{name}", DAY))
    rows = 0
    for file in some(sorted(sample("nemotron/rows").rglob("*.jsonl"))):
        for line in file.read_text().splitlines():
            text = rendered(json.loads(line), template, "proof" if "Proofs" in str(file) else "chat_if")
            assert loss_message_indexes(text.parsed, ALL)
            rows += 1

    assert rows == 36
