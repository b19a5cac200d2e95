"""Scores equal those of the plain scorer, however rows are put together; precision, padding and memory as promised."""

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
lengths_of_rows = st.lists(st.integers(1, 5000), max_size=60).map(lambda lengths: np.array(lengths, np.int64))


def made_rows(lengths: list[int], seed: int = 0) -> list[TokenRow]:
    generator = np.random.default_rng(seed)
    return [
        TokenRow(
            generator.integers(0, WORDS, length, dtype=np.int32),
            (generator.random(length) < 0.6) & (np.arange(length) > 0) | (np.arange(length) == length - 1),
        )
        for length in lengths
    ]


ROWS = made_rows([3, 50, 120, 7, 33, 64, 2, 90, 5, 5, 41, 64, 64, 17, 26, 80, 11, 9, 200, 4])


@pytest.fixture(scope="module", params=MODELS)
def model_and_reference(request: pytest.FixtureRequest, saved: Saved) -> tuple[str, LanguageModel, list[float]]:
    folder = saved(request.param)
    return request.param, load_model(folder, CPU), reference_nll(reference_model(folder), ROWS)


@pytest.mark.parametrize("batch_rows", [1, 3, 16])
def test_scores_equal_the_plain_scorers_at_any_batch_size_and_in_any_order(
    model_and_reference: tuple[str, LanguageModel, list[float]], batch_rows: int
) -> None:
    name, model, asked = model_and_reference
    order = np.random.default_rng(batch_rows).permutation(len(ROWS))

    found = score_rows(model, [ROWS[place] for place in order], 256, batch_rows).rows

    assert [one.nll_sum for one in found] == pytest.approx([asked[place] for place in order], rel=1e-4)
    assert max(one.batch_rows for one in found) <= batch_rows
    assert model.is_packed == (name in PACKED)  # wherever what a row sees is its own alone


def test_each_token_has_the_plain_scorers_nll_and_they_sum_to_the_rows(saved: Saved) -> None:
    asked = reference_token_nll(reference_model(saved("Llama")), ROWS)

    found = score_rows(load_model(saved("Llama"), CPU), ROWS, 256).rows

    for one, expected, row in zip(found, asked, ROWS, strict=True):
        assert one.token_nll.tolist() == pytest.approx(expected, rel=1e-4, abs=1e-5)
        assert len(one.token_nll) == row.in_loss.sum()
        assert one.nll_sum == pytest.approx(one.token_nll.sum(), rel=1e-12)


def test_equal_rows_have_equal_bits(saved: Saved) -> None:
    model = load_model(saved("GptOss"), CPU)

    assert score_rows(model, ROWS, 256) == score_rows(load_model(saved("GptOss"), CPU), ROWS, 256)


def test_a_logit_gap_that_bfloat16_has_not_is_seen() -> None:
    """Two words whose logits are 256 and 256 + 2**-10: as bfloat16 both would be 256."""
    width = 64
    weight = torch.zeros(2, width, dtype=torch.bfloat16)
    weight[:, 0], weight[1, 1] = 256.0, 2.0**-10
    hidden = torch.zeros(1, width, dtype=torch.bfloat16)
    hidden[:, :2] = 1.0

    apart = token_nll(hidden.repeat(2, 1), torch.tensor([0, 1]), LmHead(weight))

    assert apart.dtype == torch.float32
    assert float(apart[0] - apart[1]) == pytest.approx(2.0**-10, rel=1e-3)
    assert (hidden @ weight.T).float().diff().item() == 0  # what a cast of bfloat16 logits says


@torch.inference_mode()
def test_long_rows_are_summed_in_float64(saved: Saved) -> None:
    model = load_model(saved("Llama"), CPU)
    [row] = made_rows([3000])
    hidden = model.hidden_states([row.ids])
    places = np.flatnonzero(row.in_loss)
    tokens = token_nll(
        hidden[torch.from_numpy(places - 1)], torch.from_numpy(row.ids[places].astype(np.int64)), model.head
    )

    [found] = score_rows(model, [row], 10_000).rows

    assert found.nll_sum == float(tokens.numpy().astype(np.float64).sum())


@pytest.mark.parametrize("words", [1, 7, 499, 500, 501, 201_088])
def test_blocks_of_the_vocabulary_make_no_difference(words: int, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    hidden, weight = torch.randn(40, 16, generator=generator), torch.randn(500, 16, generator=generator)
    bias, targets = torch.randn(500, generator=generator), torch.randint(0, 500, (40,), generator=generator)
    asked = torch.nn.functional.cross_entropy(hidden @ weight.T + bias, targets, reduction="none")
    monkeypatch.setattr(nll, "_CPU_BLOCK_SHAPE", (13, words))

    assert torch.allclose(token_nll(hidden, targets, LmHead(weight, bias)), asked, atol=1e-5)


def test_logits_that_are_minus_infinity_are_words_that_never_come() -> None:
    bias = torch.full((6000,), float("-inf"))
    bias[5000:] = 0.0

    found = token_nll(torch.zeros(2, 4), torch.tensor([5000, 0]), LmHead(torch.zeros(6000, 4), bias))

    assert found.tolist() == pytest.approx([np.log(1000), np.inf])


def test_the_buffer_of_logits_is_bounded_by_construction() -> None:
    positions, words = nll._CPU_BLOCK_SHAPE

    assert (
        nll._GPU_BLOCK_POSITIONS * (nll.BUFFER_BYTES // 4 // nll._GPU_BLOCK_POSITIONS) * 4
        <= nll.BUFFER_BYTES
        == 1 << 30
    )
    assert positions * words * 4 <= nll.BUFFER_BYTES


@given(lengths_of_rows, st.integers(1, 20_000), st.one_of(st.none(), st.integers(1, 20)), st.booleans())
def test_batches_have_next_to_no_padding_and_packed_ones_have_none_and_keep_the_order(
    lengths: np.ndarray, tokens: int, rows: int | None, is_packed: bool
) -> None:
    batches = plan_batches(lengths, tokens, rows, is_packed=is_packed)

    numbers = [row for batch in batches for row in batch]
    assert (numbers if is_packed else sorted(numbers)) == list(range(len(lengths)))
    for batch in batches:
        own = [int(lengths[row]) for row in batch]
        padded = sum(own) if is_packed else max(own) * len(own)
        assert padded - sum(own) < MAX_PADDING_SHARE * padded
        assert padded <= tokens or len(own) == 1
        assert rows is None or len(own) <= rows


@pytest.mark.parametrize("name", ["Llama", "Gemma2"])
def test_a_batch_too_large_for_the_memory_is_halved(name: str, saved: Saved, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load_model(saved(name), CPU)
    asked = [one.nll_sum for one in score_rows(model, ROWS, 1000).rows]
    whole = LanguageModel.hidden_states

    def small(self: LanguageModel, rows: list[np.ndarray]) -> torch.Tensor:
        if self.count_batch_tokens([len(row) for row in rows]) > 130:
            raise torch.OutOfMemoryError
        return whole(self, rows)

    monkeypatch.setattr(LanguageModel, "hidden_states", small)
    found = score_rows(model, ROWS, 1000)

    fits = [len(row.ids) <= 130 for row in ROWS]
    assert [one.nll_sum is not None for one in found.rows] == fits
    assert [one.nll_sum for one, fit in zip(found.rows, fits, strict=True) if fit] == pytest.approx(
        [one for one, fit in zip(asked, fits, strict=True) if fit], rel=1e-4
    )
    assert found.halved_batches > 0
    assert max(one.batch_tokens for one, fit in zip(found.rows, fits, strict=True) if fit) <= 130


@pytest.mark.parametrize("name", ["Llama", "Gemma2"])
def test_a_weight_that_is_no_number_spoils_the_rows_that_meet_it_alone(name: str, saved: Saved) -> None:
    model = load_model(saved(name), CPU)
    if model.network.config.tie_word_embeddings:
        model.network.set_input_embeddings(torch.nn.Embedding.from_pretrained(model.head.weight.clone()))
    word = int(ROWS[4].ids[0])
    embedding = model.network.get_input_embeddings().weight
    former = embedding[word].clone()
    with torch.no_grad():
        embedding[word] = float("nan")
    found = score_rows(model, ROWS, 256).rows
    with torch.no_grad():
        embedding[word] = former

    is_spoiled = [bool(np.isnan(one.nll_sum)) for one in found]
    holds = [word in row.ids for row in ROWS]
    meets = [word in row.ids[: np.flatnonzero(row.in_loss)[-1]] for row in ROWS]
    assert all(met <= spoiled <= held for met, spoiled, held in zip(meets, is_spoiled, holds, strict=True))
    assert any(meets)
    assert not all(holds)
