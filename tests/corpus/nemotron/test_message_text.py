"""Content, reasoning and `<think>` tags of rows of other publishers."""

from collections.abc import Mapping

import pytest
from nemotron_rows import (
    ANALYSIS,
    ANSWER,
    FINAL,
    QUESTION,
    USER,
    called,
    normalised,
    reason_for,
    rows_recipe,
    to_row,
    to_text,
)

from pipeline_assets.corpus.nemotron.message_text import ThinkTags
from pipeline_assets.corpus.nemotron.normalise_rows import NormalisedRows

COMMENTARY = "<|start|>assistant<|channel|>commentary<|message|>"
IMAGE = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}


def part(text: str) -> dict[str, object]:
    return {"type": "text", "text": text}


def user(content: object) -> dict[str, object]:
    return {"role": "user", "content": content}


def unread_and_tagged(result: NormalisedRows) -> dict[str, int]:
    """Return the counts of unread keys and of texts with `<think>` tags."""
    return {name: count for name, count in result.counts.items() if name.startswith(("unread", "think_tags"))}


def read_answer(content: object, recipe: Mapping[str, object] = {}, **keys: object) -> tuple[str, dict[str, int]]:
    """Return the text after the user's message, and the `unread_and_tagged` counts."""
    row = {"messages": [QUESTION, {**ANSWER, "content": content, **keys}]}
    result = normalised(row, settings=rows_recipe(**recipe))
    [text] = result.batch.column("text").to_pylist()
    return text.removeprefix(USER).removesuffix("<|return|>"), unread_and_tagged(result)


@pytest.mark.parametrize("role", ["system", "user", "assistant", "tool"])
def test_text_parts_are_joined_for_every_role(role: str) -> None:
    def row(content: object) -> dict[str, object]:
        return {"messages": [QUESTION, called({}), {"role": role, "content": content, "name": None}, ANSWER]}

    joined = normalised(row([part("2 +"), part(" 2?")]))

    assert joined.batch.column("text").to_pylist() == [to_row(row("2 + 2?"))["text"]]
    assert "messages_as_json" not in joined.counts


def test_text_parts_with_null_media_are_joined() -> None:
    assert to_text(user([part("2 + 2?") | {"image_url": None}]), ANSWER) == to_text(QUESTION, ANSWER)


@pytest.mark.parametrize(
    "content",
    [
        [part("look"), IMAGE],
        [IMAGE],
        [[part("look"), IMAGE]],
        [{"type": "tool_result", "content": [{"type": "image", "source": {"data": "AA=="}}]}],
        [{"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}}],
        [{"type": "file", "file": {"file_id": "file-1"}}],
        [part("read"), {"type": "input_file", "filename": "a.pdf", "file_data": "AA=="}],
        [{"type": "input_image", "image_url": "https://example.org/a.png"}],
        [{"type": "image_file", "image_file": {"file_id": "file-1"}}],
        [{"type": "video", "video": "a.mp4"}],
        [{"type": "image"}, part("look")],
        [{"type": "audio", "audio_url": "a.wav"}],
        [{"type": "document", "source": {"type": "base64"}}],
        [{"image": "a.png"}, {"text": "look"}],
        [{"image_url": {"url": "a.png"}}],
        [{**part("look"), "image_url": {"url": "a.png"}}],
    ],
    ids=str,
)
def test_a_list_with_a_media_part_is_malformed(content: object) -> None:
    assert reason_for({"messages": [user(content), ANSWER]}) == "malformed_message"
    assert reason_for({"messages": [{"role": "system", "content": content}, QUESTION, ANSWER]}) == "malformed_message"


@pytest.mark.parametrize(
    ("content", "written"),
    [
        ([part("a"), "b"], '[{"text": "a", "type": "text"}, "b"]'),
        ([{"type": "text"}], '[{"type": "text"}]'),
        ([{"type": "text", "text": 4}], '[{"text": 4, "type": "text"}]'),
        ([[part("a")]], '[[{"text": "a", "type": "text"}]]'),
        (["a", "b"], '["a", "b"]'),
        ([{"type": "output_text", "text": "a"}], '[{"text": "a", "type": "output_text"}]'),
        ([{"file": "a.py"}, {"file": "b.py"}], '[{"file": "a.py"}, {"file": "b.py"}]'),
        ([{"image_url": "a.png", "title": "A"}], '[{"image_url": "a.png", "title": "A"}]'),
        (IMAGE, '{"image_url": {"url": "https://example.org/a.png"}, "type": "image_url"}'),
        ({"b": [1], "a": None}, '{"a": null, "b": [1]}'),
        (0, "0"),
    ],
    ids=str,
)
def test_any_other_content_becomes_json_and_is_counted(content: object, written: str) -> None:
    result = normalised({"messages": [user(content), ANSWER]})

    assert result.batch.column("text")[0].as_py().startswith(f"<|start|>user<|message|>{written}<|end|>")
    assert result.counts["messages_as_json"] == 1


@pytest.mark.parametrize("entry", [{"type": "file", "name": "a.py"}, {"type": "image", "url": "a.png"}])
def test_entries_of_a_tools_result_may_have_types_of_media(entry: dict[str, object]) -> None:
    row = {"messages": [QUESTION, called({}), {"role": "tool", "content": [entry]}, ANSWER]}

    assert normalised(row).counts["messages_as_json"] == 1


def test_media_that_a_tool_returns_are_malformed() -> None:
    for medium in (IMAGE, {"type": "image", "data": "AA==", "mimeType": "image/png"}, {"type": "file", "file": {}}):
        row = {"messages": [QUESTION, called({}), {"role": "tool", "content": [part("a"), medium]}, ANSWER]}
        assert reason_for(row) == "malformed_message"


@pytest.mark.parametrize("key", ["reasoning_content", "thinking", "reasoning"])
@pytest.mark.parametrize("reasoning", ["Count.", [part("Co"), part("unt.")]])
def test_reasoning_is_read_from_each_of_three_keys(key: str, reasoning: object) -> None:
    assert read_answer("4", **{key: reasoning}) == (f"{ANALYSIS}Count.<|end|>{FINAL}4", {})


@pytest.mark.parametrize("blank", ["", " \n", "\u3000", [part(" ")]])
def test_blank_reasoning_is_not_a_message(blank: object) -> None:
    assert read_answer("4", reasoning_content=blank) == (f"{FINAL}4", {})
    assert normalised({"messages": [QUESTION, {**ANSWER, "reasoning_content": blank}]}).counts["analysis_given"] == 0


def test_two_keys_with_equal_text_are_one_message_and_with_different_text_malformed() -> None:
    different = {**ANSWER, "thinking": "Count.", "reasoning": "Add."}

    assert read_answer("4", thinking="Count.", reasoning="Count.")[0].count("Count.") == 1
    assert read_answer("4", thinking="Count.", reasoning=" ")[0].count("Count.") == 1
    assert reason_for({"messages": [QUESTION, different]}) == "malformed_message"


def test_boolean_is_not_reasoning() -> None:
    text, counts = read_answer("4", thinking=True, reasoning_content=False)

    assert text == f"{FINAL}4"
    assert counts == {"unread_message_keys/assistant.thinking": 1, "unread_message_keys/assistant.reasoning_content": 1}


def test_the_recipe_may_name_the_key_of_reasoning() -> None:
    text, counts = read_answer("4", {"reasoning_key": "thoughts"}, thoughts="Count.", reasoning="Add.")

    assert text == f"{ANALYSIS}Count.<|end|>{FINAL}4"
    assert counts == {"unread_message_keys/assistant.reasoning": 1}


def test_keys_that_are_not_read_are_counted_by_role_and_name() -> None:
    question = user([part("2 + 2?") | {"cache_control": {"type": "ephemeral"}}]) | {"name": "ann", "weight": None}
    row = {"messages": [question, {**ANSWER, "audio": {"id": 1}, "weight": 0}]}

    assert unread_and_tagged(normalised(row, row)) == {
        "unread_message_keys/user.name": 2,
        "unread_message_keys/user.content[].cache_control": 2,
        "unread_message_keys/assistant.audio": 2,
        "unread_message_keys/assistant.weight": 2,
    }


@pytest.mark.parametrize(("key", "shown"), [("\x1b[2J", r"\x1b[2J"), ("a\nb", r"a\nb"), ("\ud800", r"\ud800")])
def test_names_of_keys_are_shown_in_printable_characters(key: str, shown: str) -> None:
    counts = normalised({"messages": [{**QUESTION, key: 1}, ANSWER], "uuid": "a"}).counts

    assert counts[f"unread_message_keys/user.{shown}"] == 1


TAGGED = [
    # content, split, drop; the text after the user's message
    ("<think>\nCount.\n</think>\n\n4", f"{ANALYSIS}Count.<|end|>{FINAL}4", f"{FINAL}4"),
    ("<think>Count.</think>", f"{ANALYSIS}Count.<|end|>{FINAL}", FINAL),
    ("<think> </think>4", f"{FINAL}4", f"{FINAL}4"),
    ("<think></think><think>Count.</think>4", f"{ANALYSIS}Count.<|end|>{FINAL}4", f"{FINAL}4"),
    (
        "<think>One.</think>So <think>Two.</think>\n4",
        f"{ANALYSIS}One.<|end|>{COMMENTARY}So <|end|>{ANALYSIS}Two.<|end|>{FINAL}4",
        f"{FINAL}So 4",
    ),
    ("<think>a<think>b</think>c</think>4", f"{ANALYSIS}a<think>b</think>c<|end|>{FINAL}4", f"{FINAL}4"),
]
UNPAIRED = ["<think>Count. 4", "Count.</think>4", "</think><think>", "<think>a<think>b</think>4", "a</think></think>"]


@pytest.mark.parametrize(("content", "split", "drop"), TAGGED)
def test_think_blocks_are_kept_split_or_dropped_by_recipe(content: str, split: str, drop: str) -> None:
    for rule, text in {"keep": FINAL + content, "split": split, "drop": drop}.items():
        assert read_answer(content, {"think_tags": rule}) == (text, {"think_tags/assistant": 1})


@pytest.mark.parametrize("rule", ThinkTags)
@pytest.mark.parametrize("content", UNPAIRED)
def test_content_with_unpaired_tags_is_unchanged_and_counted(content: str, rule: ThinkTags) -> None:
    text, counts = read_answer(content, {"think_tags": rule})

    assert text == FINAL + content
    assert counts == {"think_tags/assistant": 1, "think_tags/unpaired": 1}


@pytest.mark.parametrize("rule", ThinkTags)
def test_tags_of_others_and_in_reasoning_are_counted_and_unchanged(rule: ThinkTags) -> None:
    row = {"messages": [user("Write <think> first."), {**ANSWER, "reasoning_content": "<think>Count.</think>"}]}

    result = normalised(row, settings=rows_recipe(think_tags=rule))

    assert result.batch.column("text")[0].as_py() == (
        f"<|start|>user<|message|>Write <think> first.<|end|>{ANALYSIS}<think>Count.</think><|end|>{FINAL}4<|return|>"
    )
    assert unread_and_tagged(result) == {"think_tags/user": 1, "think_tags/analysis": 1}


def test_a_thought_that_equals_the_reasoning_is_not_repeated() -> None:
    content, split = "<think>\nCount.\n</think>4", {"think_tags": "split"}

    assert read_answer(content, split, reasoning_content="Count.\n")[0].count("Count.") == 1
    added = f"{ANALYSIS}Add.<|end|>{ANALYSIS}Count.<|end|>{FINAL}4"
    assert read_answer(content, split, reasoning_content="Add.")[0] == added


def test_thoughts_before_calls_are_split_too() -> None:
    calls = called({})["tool_calls"]

    text, _ = read_answer("<think>Look it up.</think>", {"think_tags": "split"}, tool_calls=calls)

    assert text.startswith(f"{ANALYSIS}Look it up.<|end|><|start|>assistant to=functions.lookup")


def test_tags_of_external_texts_are_counted() -> None:
    counts = unread_and_tagged(normalised({"text": f"{USER}{ANALYSIS}<think><|end|>{FINAL}<think>4<|return|>"}))

    assert counts == {"think_tags/analysis": 1, "think_tags/assistant": 1, "think_tags/unpaired": 1}
