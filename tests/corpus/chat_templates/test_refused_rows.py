"""Rows that a chat template cannot render with a proved mask."""

import json
from pathlib import Path

import pytest
from chat_models import save_chat_model
from rendered_chats import DAY, QUESTION, TALK, Load, chat, rendered
from seeded_chats import TOOLS

from pipeline_assets.corpus.chat_templates.marked_text import encode_row, parse_row
from pipeline_assets.corpus.chat_templates.template import ChatTemplateFiles, load_template
from pipeline_assets.corpus.harmony.message import Refusal
from pipeline_assets.spine.errors import InputError


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

    needed = "plain/1: these rows need a tokenizer with Harmony's control tokens"
    with pytest.raises(InputError, match=f"{needed}; score and select them apart from rows of"):
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


@pytest.mark.parametrize("name", ["chatml", "qwen"])
def test_text_without_messages_rejects_the_row(name: str, family: Load) -> None:
    reasoning = {"text": "<|start|>assistant<|channel|>analysis<|message|>Two.<|end|>"}

    with pytest.raises(Refusal, match="mask_unproved: the template writes no message"):
        rendered(reasoning, family(name))


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
