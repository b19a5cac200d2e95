"""Models that differ from what their files state are refused."""

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")

import torch
import transformers
from plain_scorer import reference_model, reference_nll
from refusals import refusal
from safetensors.torch import load_file, save_file
from tiny_models import MODELS, WORDS, change_config, save_model

from pipeline_assets.corpus.scoring import load_model as loading
from pipeline_assets.corpus.scoring.load_model import check_quantisation, load_model
from pipeline_assets.corpus.scoring.nll import score_rows
from pipeline_assets.corpus.scoring.recipe import ScoringRecipe
from pipeline_assets.corpus.scoring.row_attention import ROW_ATTENTION
from pipeline_assets.corpus.scoring.token_rows import TokenRow
from pipeline_assets.spine.errors import InputError, UsageError

CPU = ScoringRecipe()
MXFP4 = {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}
Saved = Callable[[str], Path]


def test_the_metadata_of_a_model_names_its_implementation(saved: Saved) -> None:
    model = load_model(saved("GptOss"), CPU)

    assert model.metadata == {
        "architecture": "GptOssForCausalLM",
        "attention": f"{ROW_ATTENTION} (scaled_dot_product_attention)",
        "experts": "grouped_mm",
        "quantization": None,
    }
    assert model.max_tokens == 4096


def test_a_requested_attention_is_used(saved: Saved) -> None:
    model = load_model(saved("GptOss"), ScoringRecipe(attention="eager"))

    assert (model.metadata["attention"], model.is_packed) == ("eager", False)


QUANTISED = {"quantization_config": MXFP4}
ROPE = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10_000.0}
DYNAMIC = {"rope_parameters": ROPE, "max_position_embeddings": 32}


@pytest.mark.parametrize(
    ("name", "settings", "changes", "parts"),
    [
        ("Llama", {}, {"intermediate_size": 32}, ["model cannot be loaded"]),  # its weights have another shape
        ("GptOss", {}, QUANTISED, ["mxfp4 weights would become bfloat16", "kernels"]),
        ("Llama", DYNAMIC, {}, ["would depend on the order of rows"]),
    ],
)
def test_a_model_that_would_differ_from_its_files_is_refused(
    name: str, settings: dict[str, Any], changes: dict[str, Any], parts: list[str], tmp_path: Path
) -> None:
    folder = save_model(name, tmp_path, **settings)
    change_config(folder, **changes)

    message = refusal(lambda: load_model(folder, CPU))

    assert [part for part in parts if part not in message] == []


def remove_weight(weights: Path) -> None:
    kept = load_file(weights)
    del kept["model.layers.1.mlp.up_proj.weight"]
    save_file(kept, weights, {"format": "pt"})


def truncate(weights: Path) -> None:
    weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])


MISSING = r"weights are missing .* model\.layers\.1\.mlp\.up_proj\.weight \(1 in all\); use a folder with .*"
TORN = r"weights are truncated or damaged \(.*; fetch or copy the model again"


@pytest.mark.parametrize(("damage", "message"), [(remove_weight, MISSING), (truncate, TORN)])
def test_missing_or_truncated_weights_are_refused_in_one_line(
    saved: Saved, tmp_path: Path, damage: Callable[[Path], None], message: str
) -> None:
    folder = Path(shutil.copytree(saved("Llama"), tmp_path / "torn"))
    damage(folder / "model.safetensors")

    assert re.fullmatch(f"{folder}: {message}", refusal(lambda: load_model(folder, CPU)))


def test_a_head_with_more_than_a_product_is_refused(saved: Saved, monkeypatch: pytest.MonkeyPatch) -> None:
    """Granite divides its logits, so ignoring that contradicts the model itself."""
    monkeypatch.setattr(loading, "_logit_scale", lambda config: 1.0)

    with pytest.raises(InputError, match="not the product of its last hidden states and its LM head"):
        load_model(saved("Granite"), CPU)


def test_a_gpu_never_falls_back_to_eager_attention(saved: Saved) -> None:
    """Gemma 2 caps the logits of its attention, which no packed attention supports."""
    model = load_model(saved("Gemma2"), CPU)

    with pytest.raises(InputError, match="would fall back to eager"):
        loading._check_model(model, saved("Gemma2"), ScoringRecipe(device="cuda"))


def test_a_stateful_model_is_not_packed_however_close_its_scores_are(
    saved: Saved, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error of packed rows of the tiny Mamba in bfloat16 is within tolerance."""
    monkeypatch.setitem(loading._TOLERANCE, torch.float32, 0.1)

    assert not load_model(saved("Mamba"), CPU).is_packed
    assert load_model(saved("Llama"), CPU).is_packed


@pytest.mark.parametrize("name", MODELS)
@torch.inference_mode()
def test_fused_norms_keep_the_logits(name: str, saved: Saved) -> None:
    network = transformers.AutoModelForCausalLM.from_pretrained(saved(name)).eval()
    ids = torch.arange(60)[None]
    expected = network(input_ids=ids, use_cache=False).logits
    former = [module.forward for module in network.modules()]

    loading._fuse_norms(network)

    fused = sum(before != module.forward for before, module in zip(former, network.modules(), strict=True))
    assert fused == {"Qwen3Moe": 9, "GPT2": 0, "Gemma2": 0, "Mamba": 3}.get(name, 5)
    assert torch.allclose(network(input_ids=ids, use_cache=False).logits, expected, atol=1e-4)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_missing_gpu_is_an_error(saved: Saved) -> None:
    with pytest.raises(UsageError, match="no GPU"):
        load_model(saved("Llama"), ScoringRecipe(device="cuda"))


def test_positions_scaled_by_the_longest_row_prevent_batches(tmp_path: Path) -> None:
    """With longrope a long row would change the scores of shorter rows in its batch."""
    factors = {"short_factor": [1.0] * 4, "long_factor": [8.0] * 4}
    rope = {"rope_type": "longrope", "original_max_position_embeddings": 32, "rope_theta": 10_000.0, **factors}
    folder = save_model("Llama", tmp_path, rope_parameters=rope, max_position_embeddings=256)
    generator = np.random.default_rng(0)
    rows = [TokenRow(generator.integers(0, WORDS, length, np.int32), np.arange(length) > 0) for length in (20, 100, 9)]

    model = load_model(folder, CPU)

    expected = [nll for row in rows for nll in reference_nll(reference_model(folder), [row])]
    rows_scored = score_rows(model, rows, 4096).rows
    assert [row.nll_sum for row in rows_scored] == pytest.approx(expected, rel=1e-4)
    assert {row.batch_rows for row in rows_scored} == {1}
    together = replace(model, needs_single_row_batches=False)
    assert score_rows(together, rows, 4096).rows[0].nll_sum != pytest.approx(expected[0], rel=1e-4)


def test_the_config_of_gpt_oss_120b_is_supported(tmp_path: Path) -> None:
    """The default model has a plain head, packable rows and quantized experts."""
    config = transformers.GptOssConfig(quantization_config=MXFP4)
    with torch.device("meta"):
        network = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")

    head = network.get_output_embeddings()
    assert tuple(head.weight.shape) == (201_088, 2_880)
    assert 115e9 < sum(weight.numel() for weight in network.parameters()) < 119e9
    assert loading._try_row_attention(network)
    assert loading._find_head(network, tmp_path).scale == 1.0
    with pytest.raises(InputError, match="mxfp4 weights would become bfloat16"):
        check_quantisation(config, tmp_path, dequantises=False)
    check_quantisation(config, tmp_path, dequantises=True)
