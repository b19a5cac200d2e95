"""Scores equal the plain scorer's in any batch; precision, padding and memory."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")

import torch
from hypothesis import given
from hypothesis import strategies as st
from plain_scorer import reference_model, reference_nll, reference_token_nll
from tiny_models import MODELS, PACKED, WORDS

from pipeline_assets.corpus.scoring import nll
from pipeline_assets.corpus.scoring.load_model import load_model
from pipeline_assets.corpus.scoring.nll import (
    MAX_PADDING_SHARE,
    LanguageModel,
    LmHead,
    plan_batches,
    score_rows,
    token_nll,
)
from pipeline_assets.corpus.scoring.recipe import ScoringRecipe
from pipeline_assets.corpus.scoring.token_rows import TokenRow

CPU = ScoringRecipe()
Saved = Callable[[str], Path]
row_lengths = st.lists(st.integers(1, 5000), max_size=60).map(lambda lengths: np.array(lengths, np.int64))


def random_rows(lengths: list[int], seed: int = 0) -> list[TokenRow]:
    generator = np.random.default_rng(seed)
    return [
        TokenRow(
            generator.integers(0, WORDS, length, dtype=np.int32),
            (generator.random(length) < 0.6) & (np.arange(length) > 0) | (np.arange(length) == length - 1),
        )
        for length in lengths
    ]


ROWS = random_rows([3, 50, 120, 7, 33, 64, 2, 90, 5, 5, 41, 64, 64, 17, 26, 80, 11, 9, 200, 4])


@pytest.fixture(scope="module", params=MODELS)
def model_and_reference(request: pytest.FixtureRequest, saved: Saved) -> tuple[str, LanguageModel, list[float]]:
    folder = saved(request.param)
    return request.param, load_model(folder, CPU), reference_nll(reference_model(folder), ROWS)


@pytest.mark.parametrize("batch_rows", [1, 3, 16])
def test_scores_equal_the_plain_scorer_in_any_batch_and_order(
    model_and_reference: tuple[str, LanguageModel, list[float]], batch_rows: int
) -> None:
    name, model, expected = model_and_reference
    order = np.random.default_rng(batch_rows).permutation(len(ROWS))

    scores = score_rows(model, [ROWS[number] for number in order], 256, batch_rows).rows

    assert [row.nll_sum for row in scores] == pytest.approx([expected[number] for number in order], rel=1e-4)
    assert max(row.batch_rows for row in scores) <= batch_rows
    assert model.is_packed == (name in PACKED)  # packed if a row depends only on itself


def test_token_nll_equals_the_plain_scorer_and_sums_to_the_row(saved: Saved) -> None:
    reference = reference_token_nll(reference_model(saved("Llama")), ROWS)

    scores = score_rows(load_model(saved("Llama"), CPU), ROWS, 256).rows

    for score, expected, row in zip(scores, reference, ROWS, strict=True):
        assert score.token_nll.tolist() == pytest.approx(expected, rel=1e-4, abs=1e-5)
        assert len(score.token_nll) == row.in_loss.sum()
        assert score.nll_sum == pytest.approx(score.token_nll.sum(), rel=1e-12)


def test_repeated_scores_are_equal_bit_for_bit(saved: Saved) -> None:
    model = load_model(saved("GptOss"), CPU)

    assert score_rows(model, ROWS, 256) == score_rows(load_model(saved("GptOss"), CPU), ROWS, 256)


def test_logit_gaps_below_bfloat16_precision_are_kept() -> None:
    """The logits of two words are 256 and 256 + 2**-10, in bfloat16 both 256."""
    width = 64
    weight = torch.zeros(2, width, dtype=torch.bfloat16)
    weight[:, 0], weight[1, 1] = 256.0, 2.0**-10
    hidden = torch.zeros(1, width, dtype=torch.bfloat16)
    hidden[:, :2] = 1.0

    apart = token_nll(hidden.repeat(2, 1), torch.tensor([0, 1]), LmHead(weight))

    assert apart.dtype == torch.float32
    assert float(apart[0] - apart[1]) == pytest.approx(2.0**-10, rel=1e-3)
    assert (hidden @ weight.T).float().diff().item() == 0  # as bfloat16 the logits are equal


@torch.inference_mode()
def test_long_rows_are_summed_in_float64(saved: Saved) -> None:
    model = load_model(saved("Llama"), CPU)
    [row] = random_rows([3000])
    hidden = model.hidden_states([row.ids])
    positions = np.flatnonzero(row.in_loss)
    tokens = token_nll(
        hidden[torch.from_numpy(positions - 1)], torch.from_numpy(row.ids[positions].astype(np.int64)), model.head
    )

    [scores] = score_rows(model, [row], 10_000).rows

    assert scores.nll_sum == float(tokens.numpy().astype(np.float64).sum())


@pytest.mark.parametrize("words", [1, 7, 499, 500, 501, 201_088])
def test_vocabulary_blocks_do_not_change_the_nll(words: int, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    hidden, weight = torch.randn(40, 16, generator=generator), torch.randn(500, 16, generator=generator)
    bias, targets = torch.randn(500, generator=generator), torch.randint(0, 500, (40,), generator=generator)
    expected = torch.nn.functional.cross_entropy(hidden @ weight.T + bias, targets, reduction="none")
    monkeypatch.setattr(nll, "_CPU_BLOCK_SHAPE", (13, words))

    assert torch.allclose(token_nll(hidden, targets, LmHead(weight, bias)), expected, atol=1e-5)


def test_logits_of_minus_infinity_have_probability_zero() -> None:
    bias = torch.full((6000,), float("-inf"))
    bias[5000:] = 0.0

    scores = token_nll(torch.zeros(2, 4), torch.tensor([5000, 0]), LmHead(torch.zeros(6000, 4), bias))

    assert scores.tolist() == pytest.approx([np.log(1000), np.inf])


def test_the_logit_buffer_is_bounded() -> None:
    positions, words = nll._CPU_BLOCK_SHAPE

    assert (
        nll._GPU_BLOCK_POSITIONS * (nll.BUFFER_BYTES // 4 // nll._GPU_BLOCK_POSITIONS) * 4
        <= nll.BUFFER_BYTES
        == 1 << 30
    )
    assert positions * words * 4 <= nll.BUFFER_BYTES


@given(row_lengths, st.integers(1, 20_000), st.one_of(st.none(), st.integers(1, 20)), st.booleans())
def test_batches_have_little_padding_and_packed_ones_none(
    lengths: np.ndarray, tokens: int, rows: int | None, is_packed: bool
) -> None:
    batches = plan_batches(lengths, tokens, rows, is_packed=is_packed)

    numbers = [row for batch in batches for row in batch]
    assert (numbers if is_packed else sorted(numbers)) == list(range(len(lengths)))
    for batch in batches:
        batch_lengths = [int(lengths[row]) for row in batch]
        padded = sum(batch_lengths) if is_packed else max(batch_lengths) * len(batch_lengths)
        assert padded - sum(batch_lengths) < MAX_PADDING_SHARE * padded
        assert padded <= tokens or len(batch_lengths) == 1
        assert rows is None or len(batch_lengths) <= rows


@pytest.mark.parametrize("name", ["Llama", "Gemma2"])
def test_a_batch_too_large_for_the_memory_is_halved(name: str, saved: Saved, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load_model(saved(name), CPU)
    whole_nll = [row.nll_sum for row in score_rows(model, ROWS, 1000).rows]
    whole = LanguageModel.hidden_states

    def limited(self: LanguageModel, rows: list[np.ndarray]) -> torch.Tensor:
        if self.count_batch_tokens([len(row) for row in rows]) > 130:
            raise torch.OutOfMemoryError
        return whole(self, rows)

    monkeypatch.setattr(LanguageModel, "hidden_states", limited)
    scores = score_rows(model, ROWS, 1000)

    fits = [len(row.ids) <= 130 for row in ROWS]
    assert [row.nll_sum is not None for row in scores.rows] == fits
    assert [row.nll_sum for row, fit in zip(scores.rows, fits, strict=True) if fit] == pytest.approx(
        [value for value, fit in zip(whole_nll, fits, strict=True) if fit], rel=1e-4
    )
    assert scores.halved_batches > 0
    assert max(row.batch_tokens for row, fit in zip(scores.rows, fits, strict=True) if fit) <= 130


@pytest.mark.parametrize("name", ["Llama", "Gemma2"])
def test_a_nan_weight_affects_only_rows_that_depend_on_it(name: str, saved: Saved) -> None:
    model = load_model(saved(name), CPU)
    if model.network.config.tie_word_embeddings:
        model.network.set_input_embeddings(torch.nn.Embedding.from_pretrained(model.head.weight.clone()))
    word = int(ROWS[4].ids[0])
    embedding = model.network.get_input_embeddings().weight
    original = embedding[word].clone()
    with torch.no_grad():
        embedding[word] = float("nan")
    scores = score_rows(model, ROWS, 256).rows
    with torch.no_grad():
        embedding[word] = original

    is_spoiled = [bool(np.isnan(row.nll_sum)) for row in scores]
    contains = [word in row.ids for row in ROWS]
    depends = [word in row.ids[: np.flatnonzero(row.in_loss)[-1]] for row in ROWS]
    assert all(low <= spoiled <= high for low, spoiled, high in zip(depends, is_spoiled, contains, strict=True))
    assert any(depends)
    assert not all(contains)
