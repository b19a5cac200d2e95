"""Unigram models by SentencePiece: reproducible, and without skipped lines."""

import hashlib
import io
import random
import re
import sys
from pathlib import Path

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st
from refusals import refusal

from pipeline_assets.corpus.tokens.unigram import (
    MAX_TRAINER_LINE_BYTES,
    UnigramRecipe,
    VocabularyTooLargeError,
    split_for_trainer,
    train_unigram,
)
from pipeline_assets.spine.errors import InputError, UsageError

SMALL = UnigramRecipe(vocab_size=300)


@pytest.fixture(scope="module")
def lines() -> list[str]:
    dice = random.Random(0)
    words = ["".join(dice.choice("abcdefghijé") for _ in range(dice.randint(2, 7))) for _ in range(800)]
    return [" ".join(dice.choice(words) for _ in range(20)) for _ in range(400)]


def test_two_trainings_give_equal_files_without_paths(lines: list[str], tmp_path: Path) -> None:
    first, second = train_unigram(lines, SMALL), train_unigram(iter(lines), SMALL)

    assert hashlib.sha256(first.model_bytes).digest() == hashlib.sha256(second.model_bytes).digest()
    assert str(tmp_path.parent).encode() not in first.model_bytes
    loaded = sentencepiece.SentencePieceProcessor(model_proto=first.model_bytes)
    assert loaded.get_piece_size() == 300
    assert loaded.decode(loaded.encode(lines[0])) == lines[0]
    assert (first.lines, first.added_lines) == (len(lines), 0)
    assert first.text_bytes == sum(len(line.encode()) for line in lines)


def test_the_trainer_reads_every_line(lines: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    awkward_lines = [*lines, "", "  ", "x" * 9000, "é" * 4000, "a \u2585 b", "tab\tnul\0end", "a\nb", "long " * 2000]
    pieces = [piece for line in awkward_lines for piece in split_for_trainer(line)]

    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(pieces),
        model_writer=io.BytesIO(),
        minloglevel=0,
        vocab_size=300,
        num_threads=1,
        max_sentence_length=MAX_TRAINER_LINE_BYTES,
    )

    log = capfd.readouterr().err
    assert re.findall(r"Loaded all (\d+) sentences", log) == [str(len(pieces))]
    assert not re.search("[Ss]kipp|null character", log)
    trained = train_unigram(awkward_lines, SMALL)
    assert trained.lines == len(pieces)
    assert trained.added_lines == len(pieces) - (len(awkward_lines) - 2)  # two are blank


@given(st.text(max_size=40).flatmap(lambda text: st.integers(1, 700).map(lambda times: text * times)))
def test_split_lines_have_all_readable_characters(text: str) -> None:
    pieces = list(split_for_trainer(text))

    assert all(0 < len(piece.encode()) <= MAX_TRAINER_LINE_BYTES for piece in pieces)
    assert all(piece == piece.strip() and not set(piece) & {"\n", "\0", "\u2585"} for piece in pieces)
    readable = re.sub("[\0\u2585\\s]", "", text.encode("utf-8", "replace").decode())
    assert re.sub(r"\s", "", "".join(pieces)) == readable


def test_too_many_pieces_are_refused_with_the_possible_number(lines: list[str]) -> None:
    with pytest.raises(VocabularyTooLargeError) as refused:
        train_unigram(lines, UnigramRecipe(vocab_size=100_000))

    pieces = refused.value.max_pieces
    assert str(refused.value) == (
        f"tokenizer.vocab_size: must be <= {pieces:,} for this sample, got 100,000; add text, or set at most {pieces:,}"
    )
    assert train_unigram(lines, UnigramRecipe(vocab_size=pieces)).lines == len(lines)


def test_fewer_pieces_than_characters_are_refused_with_the_required_number(lines: list[str]) -> None:
    line = refusal(lambda: train_unigram(lines, UnigramRecipe(vocab_size=8)), UsageError)

    match = re.fullmatch(
        r"tokenizer\.vocab_size: must be >= (\d+) for the characters of this sample, got 8; "
        "raise it, or lower `character_coverage`",
        line,
    )
    assert match
    assert train_unigram(lines, UnigramRecipe(vocab_size=int(match[1]))).lines == len(lines)
    assert "must be >=" in refusal(
        lambda: train_unigram(lines, UnigramRecipe(vocab_size=int(match[1]) - 1)), UsageError
    )


def test_no_text_is_refused() -> None:
    assert refusal(lambda: train_unigram(["", " \0 "], SMALL), InputError).startswith(
        "the sample: no text to train on; "
    )


def test_a_coverage_that_sentencepiece_refuses_is_named_by_its_key() -> None:
    line = refusal(lambda: UnigramRecipe.from_mapping({"character_coverage": "0.97"}, "tokenizer"), UsageError)

    assert line == "tokenizer: `character_coverage` must be in [0.98, 1], got '0.97'; correct the value"
    assert UnigramRecipe(character_coverage="0.98").character_coverage == "0.98"


def test_without_sentencepiece_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentencepiece", None)

    line = refusal(lambda: train_unigram([], SMALL), UsageError)

    assert line.startswith("tokenizers: sentencepiece is not installed; in the project's folder run ")
