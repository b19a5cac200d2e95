"""The vocabulary of o200k Harmony: only the pinned, shipped file is accepted."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pydantic
import pytest

from pipeline_assets.corpus.tokens import o200k_harmony
from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_PATH, VOCABULARY_SHA256, HarmonyRecipe, load_encoder
from pipeline_assets.corpus.tokens.o200k_vocabulary import END_OF_TEXT, NUM_RANKS, SPECIAL_TOKENS, read_ranks
from pipeline_assets.spine.errors import InputError


def test_the_shipped_file_is_the_published_one() -> None:
    ranks = read_ranks(VOCABULARY_PATH)

    assert len(ranks) == NUM_RANKS == 199_998
    assert ranks[b"!"] == 0
    assert ranks[b" world"] == 2375
    assert VOCABULARY_SHA256 == "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"


def test_a_file_with_another_hash_is_refused_with_both_hashes_and_a_fix() -> None:
    pinned = "0" * 64

    with pytest.raises(InputError) as error:
        load_encoder(pinned)

    assert str(error.value) == (
        f"{VOCABULARY_PATH}: sha256 is {VOCABULARY_SHA256}, pinned {pinned}; "
        "restore the file, or pin the hash of the intended file"
    )


@pytest.mark.parametrize(
    ("name", "shipped", "problem", "fix"),
    [
        ("none.tiktoken", VOCABULARY_PATH.name, "No such file or directory", "pass the path of a .tiktoken file"),
        (".", VOCABULARY_PATH.name, "Is a directory", "pass the path of a .tiktoken file"),
        ("gone.tiktoken", "gone.tiktoken", "No such file or directory", "reinstall the program"),
    ],
)
def test_an_unreadable_file_is_named_and_the_shipped_one_needs_a_reinstallation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, shipped: str, problem: str, fix: str
) -> None:
    monkeypatch.setattr(o200k_harmony, "VOCABULARY_PATH", tmp_path / shipped)

    with pytest.raises(InputError) as error:
        load_encoder(VOCABULARY_SHA256, tmp_path / name)

    assert str(error.value) == f"{tmp_path / name}: cannot read the tokenizer file ({problem}); {fix}"


def test_a_recipe_can_pin_only_the_shipped_vocabulary() -> None:
    other = "ab" * 32

    with pytest.raises(pydantic.ValidationError) as refused:
        HarmonyRecipe(family="o200k_harmony", sha256=other)

    assert refused.value.errors()[0]["msg"] == (
        f"Value error, the vocabulary that ships with this program has {VOCABULARY_SHA256}"
    )
    assert HarmonyRecipe(family="o200k_harmony", sha256=VOCABULARY_SHA256).sha256 == VOCABULARY_SHA256


@pytest.mark.parametrize(
    "content",
    [b"", b"IQ== 0\nIg==\n", b"IQ== 0\nIg== 2\n", b"IQ== 1\n", b"IQ== zero\n", b"IQ== 0\nIQ== 1\n", b"{} 0 1"],
    ids=["empty", "cut", "gap", "starts at 1", "word", "twice", "json"],
)
def test_ranks_with_a_gap_or_in_another_form_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "ranks").write_bytes(content)

    with pytest.raises(InputError) as error:
        read_ranks(tmp_path / "ranks")

    assert str(error.value) == (
        f"{tmp_path}/ranks: expected lines of `<base64> <rank>` with ranks 0, 1, 2, …; use a .tiktoken rank file"
    )


def test_special_tokens_are_those_of_openai_harmony() -> None:
    pytest.importorskip("openai_harmony", reason="needs openai-harmony==0.0.8")
    script = """
import json
from openai_harmony import HarmonyEncodingName, load_harmony_encoding
harmony = load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)
names = sorted(harmony.special_tokens_set)
print(json.dumps([names, harmony.encode("".join(names), allowed_special=set(names))]))
"""
    environment = {**os.environ, "TIKTOKEN_ENCODINGS_BASE": str(VOCABULARY_PATH.parent)}

    output = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True, timeout=60
    ).stdout

    names, ids = json.loads(output)
    assert dict(zip(names, ids, strict=True)) == SPECIAL_TOKENS


def test_the_end_of_a_document_and_the_tokens_of_a_conversation_have_their_published_ids() -> None:
    assert END_OF_TEXT == SPECIAL_TOKENS["<|endoftext|>"] == 199_999
    assert [SPECIAL_TOKENS[f"<|{name}|>"] for name in ("return", "channel", "start", "end", "message", "call")] == [
        200_002,
        200_005,
        200_006,
        200_007,
        200_008,
        200_012,
    ]
    assert min(SPECIAL_TOKENS.values()) == NUM_RANKS
    assert len(set(SPECIAL_TOKENS.values())) == len(SPECIAL_TOKENS) == 1_091
