"""Chat templates of a model's folder, with variables and errors in one line."""

import json
from pathlib import Path

import pytest
from chat_models import save_chat_model
from rendered_chats import DAY, QUESTION, chat, rendered

from pipeline_assets.corpus.chat_templates.template import ChatTemplateFiles, load_template
from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.systems.nemotron import NemotronRecipe


def test_variables_of_a_recipe_reach_the_template(tmp_path: Path) -> None:
    turns = "{% for m in messages %}<|im_start|>{{ m.content }}{% endfor %}"
    folder = save_chat_model(tmp_path / "m", "chatml")
    (folder / "chat_template.jinja").write_text("{{ mood }}{{ limit + 1 }}{{ is_long is true }}" + turns)
    variables = json.dumps({"mood": "calm", "limit": 3, "is_long": True})

    template = load_template(ChatTemplateFiles(folder, "v", DAY, variables))
    text = rendered(chat(QUESTION, {"role": "assistant", "content": "4"}), template)

    assert text.parsed.text == "calm4True<|im_start|>2 + 2?<|im_start|>4"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("messages", "x", "`variables` cannot set messages, which each row sets"),
        ("names", ["a"], "rows.template.variables.names"),
    ],
)
def test_variable_of_an_invalid_type_or_name_is_refused(name: str, value: object, message: str) -> None:
    rows = {"template": {"path": ".", "variables": {name: value}}}

    with pytest.raises(UsageError, match=message):
        NemotronRecipe.from_mapping({"system": "nemotron", "name": "v", "rows": rows, "datasets": []}, "the test")


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
    "a token without its text": (
        "tokenizer_config.json",
        b'{"bos_token": {"id": 1}}',
        '`bos_token` has no `content`, got {"id": 1}; use a folder',
    ),
    "a token that is a number": ("special_tokens_map.json", b'{"bos_token": 5}', "`bos_token` must be text, got 5"),
    "half a configuration": ("tokenizer_config.json", b"{", "json: not valid JSON (Expecting property name"),
    "a deep configuration": ("tokenizer_config.json", b"[" * 100_000, "json: not valid JSON (maximum recursion depth"),
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
