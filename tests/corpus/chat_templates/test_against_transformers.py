"""Rendered rows with the text and ids of transformers, whose masks are proved."""

import functools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from chat_models import FAMILIES, save_chat_model
from real_samples import sample, some
from rendered_chats import ALL, DAY, QUESTION, chat, rendered
from seeded_chats import seeded_row

from pipeline_assets.corpus.chat_templates.marked_text import format_loss_rule, parse_row
from pipeline_assets.corpus.chat_templates.template import ChatTemplate, ChatTemplateFiles, load_template
from pipeline_assets.corpus.harmony.encode import loss_message_indexes
from pipeline_assets.corpus.harmony.message import Role


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
    text = rendered(row, load_template(ChatTemplateFiles(folder, "new", DAY))).parsed.text
    assert text.startswith("<|im_start|><unknown>")


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
    template = load_template(ChatTemplateFiles(save_chat_model(folder, name), f"test/{name}", DAY))
    counts = Counter[str]()
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
