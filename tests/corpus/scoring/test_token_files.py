"""Token files: ids and masks equal openai-harmony's; bad rows are named."""

import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from chat_models import save_chat_model
from nemotron_rows import encoder
from subset_pools import HARD, Row, bare, build_subsets, ids_in, rows_in, scored, talk

from pipeline_assets.corpus.chat_templates.template import ChatTemplateFiles, load_template
from pipeline_assets.corpus.harmony.encode import LOSS_MODES, AssistantAll, AssistantLast
from pipeline_assets.corpus.scoring.subset_tokens import ROWS_SCHEMA
from pipeline_assets.corpus.tokens.o200k_harmony import HarmonyEncoder
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.errors import InputError

DECODE = HarmonyEncoder.decode
ALL, LAST = AssistantAll(has_analysis=True, has_calls=True), AssistantLast()
RULES: dict[str, Any] = {
    "low": {"percentile": [0, 50]},
    "high": {"percentile": [50, 100]},
    "none": {"percentile": [0, 0]},
}


def build_files(tmp_path: Path, workers: int = 0, loss: dict[str, bool] | None = None, **changes: Any) -> Artifact:
    """Build token files of two splits whose rows use several loss rules."""
    losses = [*LOSS_MODES, None]
    answers = ["four", HARD.replace("<|endoftext|>", "|>"), "4 " * 300, "", "\n\n4\n"]
    splits = []
    for name in ("math/low", "math/high"):
        rows = [
            talk(f"{name}-{number}", f"{answers[number % 5]} {number}" if number % 5 != 3 else "")
            | {"loss_rule": losses[number % 6], "loss_mode": "assistant_all"} | changes
            for number in range(8)
        ]  # fmt: skip
        splits.append(scored(tmp_path, name, rows, [float(number) for number in range(8)]))
    return build_subsets(tmp_path, splits, RULES, workers, tokens=True, **(loss or {}))


def split_messages(text: str) -> list[tuple[str, str, str]]:
    """Split a text into header, body and terminator of each message."""
    pieces = text.split("<|start|>")[1:]
    cut = [piece.partition("<|message|>") for piece in pieces]
    return [(header, *re.fullmatch(r"(.*)(<\|\w+\|>)", body, re.DOTALL).groups()) for header, _, body in cut]


def texts_in_loss(row: Row, terminators: bool, headers: bool) -> list[str]:
    mode = LOSS_MODES.get(row["loss_rule"], ALL)
    replies = [message for message in split_messages(row["text"]) if message[0].startswith("assistant")]
    if mode == LAST:
        chosen = [message for message in replies[-1:] if " to=" not in message[0]]
    else:
        chosen = [
            message for message in replies if (mode.has_calls or " to=" not in message[0])
            and (mode.has_analysis or "<|channel|>analysis" not in message[0])
        ]  # fmt: skip
    return [
        (header.removeprefix("assistant") + "<|message|>") * headers + body + end * terminators
        for header, body, end in chosen
    ]


LOSSES: list[dict[str, bool]] = [{}, {"terminators": False}, {"headers": True}, {"terminators": False, "headers": True}]


@pytest.mark.parametrize("loss", LOSSES)
def test_token_files_have_the_tokens_and_loss_mask_of_each_row(tmp_path: Path, loss: dict[str, bool]) -> None:
    artifact, counts = build_files(tmp_path, loss=loss), {"terminators": True, "headers": False, **loss}

    oracle = encoder().oracle
    for rule in ("low", "high"):
        folder = artifact.folder / "tokens" / rule
        tokens, mask = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("tokens", "loss_mask"))
        index, rows = pq.read_table(folder / "rows.parquet"), rows_in(artifact, rule)
        assert (tokens.dtype, mask.dtype, tokens.shape) == (np.int32, np.bool_, mask.shape)
        assert index.schema.remove_metadata().equals(ROWS_SCHEMA)
        assert index["id"].to_pylist() == ids_in(artifact, rule) == [row["id"] for row in rows]
        assert index["split"].to_pylist() == [row["id"].rpartition("-")[0] for row in rows]
        assert sum(index["tokens"].to_pylist()) == len(tokens)
        next_token = 0
        for entry, row in zip(index.to_pylist(), rows, strict=True):
            assert entry["first_token"] == next_token
            next_token += entry["tokens"]
            row_slice = slice(entry["first_token"], next_token)
            assert tokens[row_slice].tolist() == oracle.encode(row["text"], allowed_special="all")
            edges = np.flatnonzero(np.diff([0, *mask[row_slice].astype(int), 0])).reshape(-1, 2)
            decoded = [oracle.decode(tokens[row_slice][start:stop].tolist()) for start, stop in edges]
            assert decoded == [text for text in texts_in_loss(row, **counts) if text]
            assert row["completion_token_count"] == 4  # as scored
            added = " ".join(f"{name}={str(value).lower()}" for name, value in counts.items())
            assert entry["loss_rule"] == f"{row['loss_rule'] or ALL.rule} {added}"
    assert not (artifact.folder / "tokens" / "none").exists()


CALLED = "<|start|>assistant to=functions.look<|channel|>commentary <|constrain|>json<|message|>{}<|call|>"
LATER = "<|start|>assistant<|channel|>commentary to=functions.look<|message|>{}<|call|>"
NAMED = "<|start|>assistant:Zoë_7 to=user<|channel|>final<|message|>4<|return|>"
PLAIN = "<|start|>assistant<|message|>4<|end|>"


@pytest.mark.parametrize("text", [CALLED, LATER, NAMED, PLAIN])
def test_headers_are_in_the_loss_after_the_author(tmp_path: Path, text: str) -> None:
    rows = [talk("a") | {"text": f"<|start|>user<|message|>2 + 2?<|end|>{text}", "loss_rule": ALL.rule}]
    splits = [scored(tmp_path, "math/low", rows, [1.0])]

    artifact = build_subsets(tmp_path, splits, {"all": {}}, tokens=True, headers=True)

    tokens, mask = (np.load(artifact.folder / "tokens" / "all" / f"{name}.npy") for name in ("tokens", "loss_mask"))
    author = re.match(r"<\|start\|>assistant(:\w+)?", text)
    assert author and encoder().decode(tokens[mask]) == text.removeprefix(author.group())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"loss_rule": "assistant_all/9"}, "math/high math/high-0: loss_rule is 'assistant_all/9'"),
        ({"loss_rule": "assistant_turns/1 messages=0"}, "names message 0, which is not an assistant message"),
        ({"loss_rule": None, "loss_mode": None}, "loss_mode is None"),
        ({"text": "no Harmony"}, "math/high math/high-0: .*text_outside_messages"),
        ({"text": "<|start|>user<|message|>is <|endoftext|> text?<|end|>"}, "control_tokens_in_content"),
        ({"text": f"<|start|>user<|message|>{' ' * 1_100_000}x<|end|>"}, "not_encodable"),
        ({"text": None}, "row has no text"),
    ],
)
def test_a_row_that_cannot_be_encoded_stops_the_build_and_is_named(tmp_path: Path, changes: Row, message: str) -> None:
    with pytest.raises(InputError, match=message):
        build_files(tmp_path, **changes)


@pytest.mark.parametrize("text", ["is <|endoftext|> text?", f"{' ' * 1_100_000}x"])
def test_only_the_bad_row_of_a_batch_is_named(tmp_path: Path, text: str) -> None:
    bad = {"text": f"<|start|>user<|message|>{text}<|end|>"}
    splits = [scored(tmp_path, "math/low", [talk("a"), talk("b") | bad, talk("c")], [1.0, 2.0, 3.0])]

    with pytest.raises(InputError, match=r"math/low b: (?!.*message 1)"):
        build_subsets(tmp_path, splits, {"all": {}}, tokens=True)


def test_a_template_row_whose_body_ends_within_a_token_is_named(tmp_path: Path) -> None:
    files = ChatTemplateFiles(save_chat_model(tmp_path / "model", "chatml"), "test/chatml", "2026-01-31")
    template = load_template(files)
    text = "<|im_start|>user\n2 + 2?<|im_end|>\n<|im_start|>assistant\nfour<|im_end|>\n"
    body = text.index("four")
    ends = {"a": 4, "b": 4, "c": 6}  # "four<|": a part of the token <|im_end|>
    rules = {name: f"spans/1 user@17-23 assistant@{body}-{body + end}*" for name, end in ends.items()}
    rows = [bare(name, text=text, template=template.column_value, loss_rule=rule) for name, rule in rules.items()]
    splits = [scored(tmp_path, "math/low", rows, [1.0, 2.0, 3.0])]

    with pytest.raises(InputError, match=r"math/low c: .*tokens do not end where the body does"):
        build_subsets(tmp_path, splits, {"all": {}}, tokenizer=template.tokenizer, tokens=True)


OTHER_MASK = "tokens in the loss mask do not decode to the text that counts"


@pytest.mark.parametrize(
    ("decode", "message"),
    [
        (lambda encoder, ids: DECODE(encoder, ids).replace("four", "five"), "tokens do not decode to the row's text"),
        (lambda encoder, ids: DECODE(encoder, ids if len(ids) > 40 else ids[1:]), OTHER_MASK),
    ],
)
def test_tokens_or_a_mask_that_decode_to_other_text_stop_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, decode: Callable[[HarmonyEncoder, Any], str], message: str
) -> None:
    monkeypatch.setattr(HarmonyEncoder, "decode", decode)

    with pytest.raises(InputError, match=f"math/high math/high-0: {message}"):
        build_files(tmp_path)


def test_a_resumed_build_equals_an_undisturbed_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        calls = itertools.count()
        patched.setattr(HarmonyEncoder, "decode", lambda self, ids: DECODE(self, ids) if next(calls) < 30 else "")
        with pytest.raises(InputError, match="do not decode"):
            build_files(tmp_path / "stopped")
    [folder] = (tmp_path / "stopped").glob(".subsets.building.*")
    assert sorted(path.name for path in folder.rglob("*.ids")) == ["low-00000.ids", "low-00001.ids"]
    [torn] = folder.rglob("low-00000.ids")
    torn.write_bytes(torn.read_bytes()[:-4])

    artifact = build_files(tmp_path / "stopped")

    whole = build_files(tmp_path / "whole")
    assert artifact.manifest.digest == whole.manifest.digest and artifact.manifest.storage == whole.manifest.storage
