"""Scores on a GPU: as on a CPU, independent of batches, within its memory."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")

import torch
from tiny_models import MODELS, PACKED, WORDS
from tiny_scoring import build_rows, save_whole_model, score_here, scored_rows, scoring_recipe, write_pool

from pipeline_assets.corpus.scoring import nll
from pipeline_assets.corpus.scoring.load_model import load_model
from pipeline_assets.corpus.scoring.nll import LmHead, score_rows, token_nll
from pipeline_assets.corpus.scoring.recipe import ScoringRecipe
from pipeline_assets.corpus.scoring.row_attention import attend_by_rows
from pipeline_assets.corpus.scoring.token_rows import TokenRow

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
GPU = ScoringRecipe(device="cuda")
Saved = Callable[[str], Path]


def random_rows(*lengths: int) -> list[TokenRow]:
    generator = np.random.default_rng(0)
    return [TokenRow(generator.integers(0, WORDS, length, dtype=np.int32), np.arange(length) > 0) for length in lengths]


@pytest.mark.parametrize("name", [name for name in MODELS if name != "Gemma2"])
def test_a_gpu_gives_the_scores_of_a_cpu(name: str, saved: Saved) -> None:
    rows = random_rows(*range(40, 400, 19))
    on_cpu, on_gpu = (load_model(saved(name), recipe) for recipe in (ScoringRecipe(), GPU))

    cpu_nll, gpu_nll = (
        [
            row.nll_sum / int(source.in_loss.sum())
            for source, row in zip(rows, score_rows(model, rows, 2000).rows, strict=True)
        ]
        for model in (on_cpu, on_gpu)
    )

    assert on_gpu.is_packed == (name in PACKED)
    assert gpu_nll == pytest.approx(cpu_nll, abs=0.1)


def test_attention_of_a_row_does_not_depend_on_its_neighbours() -> None:
    generator = torch.Generator("cuda").manual_seed(0)
    lengths = [700, 3, 4000, 129]
    bounds = torch.tensor([0, *np.cumsum(lengths)], dtype=torch.int32, device="cuda")
    query, key, value = (
        torch.randn(1, heads, sum(lengths), 64, generator=generator, device="cuda", dtype=torch.bfloat16)
        for heads in (8, 2, 2)
    )

    def attend(first: int, stop: int, rows: torch.Tensor) -> torch.Tensor:
        heads = (part[:, :, first:stop] for part in (query, key, value))
        longest = int(rows.diff().max())
        return attend_by_rows(torch.nn.Module(), *heads, None, cu_seq_lens_q=rows, max_length_q=longest)[0]

    together = attend(0, sum(lengths), bounds)
    for first, stop in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        alone = attend(first, stop, torch.tensor([0, stop - first], dtype=torch.int32, device="cuda"))
        assert torch.equal(alone, together[:, first:stop])


@pytest.mark.parametrize("has_kernel", [True, False])
def test_blocks_of_logits_give_the_nll_of_all_logits(has_kernel: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator("cuda").manual_seed(0)
    hidden, weight = (
        torch.randn(size, 64, generator=generator, device="cuda", dtype=torch.bfloat16) for size in (5000, 201_088)
    )
    targets = torch.randint(0, 201_088, (5000,), generator=generator, device="cuda")
    hidden[7, 0], hidden[8, 0] = torch.nan, torch.inf
    if not has_kernel:
        monkeypatch.setattr(nll, "_load_fold_kernel", lambda: nll._fold_logits)

    scores = token_nll(hidden, targets, LmHead(weight))

    assert (nll._load_fold_kernel() is nll._fold_logits) != has_kernel
    expected = torch.nn.functional.cross_entropy(hidden.float() @ weight.float().T, targets, reduction="none")
    assert not scores[7:9].isfinite().any()
    assert torch.allclose(scores[9:], expected[9:], rtol=1e-5, atol=1e-4)


def test_a_batch_that_exceeds_the_memory_is_halved(saved: Saved) -> None:
    rows, model = random_rows(*[2000] * 160), load_model(saved("Llama"), GPU)
    whole = score_rows(model, rows, 8000)
    torch.cuda.empty_cache()
    limit = torch.cuda.memory_reserved() + (64 << 20)

    torch.cuda.set_per_process_memory_fraction(limit / torch.cuda.get_device_properties(0).total_memory)
    try:
        halved = score_rows(model, rows, 320_000)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)

    assert (whole.halved_batches, halved.halved_batches > 0) == (0, True)
    assert [row.nll_sum for row in halved.rows] == pytest.approx([row.nll_sum for row in whole.rows], rel=1e-3)


def test_a_build_scores_a_pool_on_a_gpu(tmp_path: Path) -> None:
    model = save_whole_model(tmp_path / "model")
    pool = write_pool(tmp_path / "pool", build_rows(30))

    manifest = score_here(tmp_path / "root", scoring_recipe(pool, model, device="cuda"))

    assert [row["reason"] for row in scored_rows(tmp_path / "root")] == [None] * 30
    assert manifest.identity.decisions["model"]["attention"] == "corpusmill_by_rows (varlen_attn)"
    assert manifest.provenance["scored_by"]["device"] == torch.cuda.get_device_name()
