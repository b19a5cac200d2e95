"""Encoded rows: the completion is in the loss, and unscorable rows have a reason."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nemotron_rows import ANSWER, QUESTION, SETTINGS, encoder, normalised
from nemotron_samples import EVERY_SPLIT, row_origin, split_rows
from real_samples import some
from tiny_tokenizer import save_tokenizer

from pipeline_assets.corpus.harmony.encode import LOSS_MODES, encode_harmony, loss_message_indexes, row_loss_mode
from pipeline_assets.corpus.harmony.message import CONTROL_TOKENS
from pipeline_assets.corpus.harmony.parse import parse_harmony
from pipeline_assets.corpus.scoring.token_rows import EncodedRow, encode_row
from pipeline_assets.corpus.tokens.hf_tokenizer import load_model_tokenizer
from pipeline_assets.spine.errors import InputError

LONG = 1 << 31
TEXT = (
    "<|start|>user<|message|>2 + 2?<|end|>"
    "<|start|>assistant<|channel|>analysis<|message|>Two and two.<|end|>"
    "<|start|>assistant<|channel|>final<|message|>4 – ça va<|return|>"
)


def bodies_in_loss(text: str, rule: str) -> list[str]:
    """Cut the bodies in the loss out of the text."""
    parsed = parse_harmony(text)
    return [parsed.messages[number].message.content for number in loss_message_indexes(parsed, LOSS_MODES[rule])]


def split_runs(row: EncodedRow) -> list[np.ndarray]:
    """Split the ids in the loss into runs."""
    places = np.flatnonzero(row.tokens.in_loss)
    return [row.tokens.ids[part] for part in np.split(places, np.flatnonzero(np.diff(places) > 1) + 1)]


@pytest.mark.parametrize("name", EVERY_SPLIT)
@pytest.mark.parametrize("rule", LOSS_MODES)
def test_ids_in_the_loss_are_the_completion_bodies_of_every_real_row(name: str, rule: str, real: bool) -> None:
    rows = normalised(*split_rows(name, real), settings=SETTINGS, origin=row_origin(name)).batch

    for text in some(rows["text"].to_pylist()):
        row = encode_row(text, None, rule, encoder(), LONG)

        expected = [body for body in bodies_in_loss(text, rule) if body]
        if not expected:
            assert row.reason == "no_completion"
            continue
        assert [encoder().decode(run) for run in split_runs(row)] == expected
        assert encoder().decode(row.tokens.ids) == text
        assert row.completion_bytes == sum(len(body.encode()) for body in expected)
        assert not row.tokens.in_loss[0]


@given(st.integers(1, 40))
def test_a_long_row_loses_its_end(max_length: int) -> None:
    whole = encode_row(TEXT, "assistant_all", None, encoder(), LONG)
    cut = encode_row(TEXT, "assistant_all", None, encoder(), max_length)

    tokens, counts = len(whole.tokens.ids), whole.tokens.in_loss[:max_length]
    assert cut.tokens_lost == max(tokens - max_length, 0)
    assert cut.reason == (None if counts.any() else "no_completion_left")
    assert cut.tokens.ids.tolist() == whole.tokens.ids[:max_length].tolist()
    assert cut.tokens.in_loss.tolist() == counts.tolist()
    decoded = "".join(encoder().decode(run) for run in split_runs(cut)).rstrip("\N{REPLACEMENT CHARACTER}")
    assert cut.completion_bytes == len(decoded.encode())


@pytest.mark.parametrize(
    ("text", "loss_mode", "reason"),
    [
        ("", "assistant_all", "no_text"),
        (TEXT, "assistant_some", "unknown_loss_mode"),
        (TEXT, None, "unknown_loss_mode"),
        ("<|start|>user<|message|>2 + 2?<|end|>", "assistant_all", "no_completion"),
        ("<|start|>user<|message|>2 + 2?<|end|><|start|>assistant<|message|><|end|>", "assistant_all", "no_completion"),
        ("2 + 2?", "assistant_all", "text_outside_messages"),
        ("<|start|>user<|message|>2 + 2?", "assistant_all", "message_not_closed"),
    ],
)
def test_a_row_without_anything_to_score_has_a_reason(text: str | None, loss_mode: str | None, reason: str) -> None:
    assert encode_row(text, loss_mode, None, encoder(), LONG).reason == reason


def test_another_tokenizer_encodes_rows_by_loss_mode_alone(tmp_path: Path) -> None:
    tokenizer = load_model_tokenizer(save_tokenizer(tmp_path))

    row, last = (encode_row(TEXT, mode, None, tokenizer, LONG) for mode in ("assistant_all", "assistant_last"))

    assert [tokenizer.decode(run) for run in split_runs(row)] == ["Two and two.", "4 – ça va"]
    assert [tokenizer.decode(run) for run in split_runs(last)] == ["4 – ça va"]
    assert row.completion_bytes == len("Two and two.4 – ça va".encode()) == row.tokens.in_loss.sum()
    controls = np.isin(row.tokens.ids, [tokenizer.special_ids[control] for control in CONTROL_TOKENS])
    assert controls.sum() == TEXT.count("<|")


def test_content_of_messages_never_becomes_a_control_token(tmp_path: Path) -> None:
    """Control tokens split over two bodies, or next to a header, stay text."""
    tokenizer = load_model_tokenizer(save_tokenizer(tmp_path))
    text = "<|start|>user<|message|><|en<|end|><|start|>assistant<|message|>d|> <|sta<|end|>"

    [encoded] = encode_harmony([parse_harmony(text)], tokenizer)

    inside = [encoded.ids[start:stop] for start, stop in encoded.bodies.tolist()]
    assert [tokenizer.decode(ids) for ids in inside] == ["<|en", "d|> <|sta"]
    assert not np.isin(np.concatenate(inside), list(tokenizer.special_ids.values())).any()


@pytest.mark.parametrize(
    ("controls", "are_special", "tokens"),
    [
        ((), True, "<|start|>, <|message|>, <|channel|>, <|constrain|>, <|end|>, <|call|>, <|return|>"),
        (CONTROL_TOKENS, False, "<|start|>"),
    ],
)
def test_a_tokenizer_without_control_tokens_is_refused(
    tmp_path: Path, controls: tuple[str, ...], are_special: bool, tokens: str
) -> None:
    with pytest.raises(InputError) as refused:
        load_model_tokenizer(save_tokenizer(tmp_path, controls, are_special))

    assert f"the model's tokenizer lacks the special tokens {tokens}" in str(refused.value)


def test_a_chat_tokenizer_without_special_tokens_is_refused_without_mention_of_harmony(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no special tokens; use a model whose tokenizer has special tokens"):
        load_model_tokenizer(save_tokenizer(tmp_path, (), True), is_harmony=False)


@pytest.mark.parametrize(
    "content",
    ['["a", "list"]', '{"added_tokens": [1]}', '{"added_tokens": [{"special": true}]}', "[" * 100_000],
    ids=["list", "numbers", "no content", "deep"],
)
def test_an_invalid_tokenizer_file_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(content)

    with pytest.raises(InputError, match=r"not a valid tokenizer\.json"):
        load_model_tokenizer(tmp_path)


def test_the_loss_covers_the_messages_that_the_rule_names(tmp_path: Path) -> None:
    tokenizer = load_model_tokenizer(save_tokenizer(tmp_path))
    text = "<|start|>user<|message|>Q<|end|><|start|>assistant<|message|>A<|end|><|start|>assistant<|message|>B<|end|>"

    row = encode_row(text, "assistant_turns", "assistant_turns/1 messages=2", tokenizer, 100)
    unknown = encode_row(text, "assistant_turns", "assistant_turns/1 messages=0", tokenizer, 100)

    assert tokenizer.decode(row.tokens.ids[row.tokens.in_loss]) == "B"
    assert unknown.reason == "unknown_loss_mode"


def test_normalised_rows_have_the_loss_mode_of_their_rule() -> None:
    [row] = normalised({"messages": [QUESTION, ANSWER]}).batch.to_pylist()

    assert row_loss_mode(row["loss_mode"], row["loss_rule"]) == SETTINGS.loss_mode
