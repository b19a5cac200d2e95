"""Odd configs of models are refused in one line, quickly."""

import shutil
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from tiny_models import MODELS, change_config, save_model

from pipeline_assets.corpus.scoring.config_sizes import check_config_sizes
from pipeline_assets.corpus.scoring.load_model import load_model
from pipeline_assets.corpus.scoring.recipe import ScoringRecipe
from pipeline_assets.spine.errors import InputError

QUANTISATIONS: list[Any] = [
    {"quant_method": "gptq", "bits": 4, "group_size": 128},
    *({"quant_method": method} for method in ("gptq", "awq", "hqq", "torchao", "compressed-tensors", "unknown")),
    *({"quant_method": odd} for odd in (None, 7, ["gptq"])),
    {"quant_method": "gptq", "bits": "4"},
    {"quant_method": "fp8", "weight_block_size": "x"},
    {"quant_method": "mxfp4", "modules_to_not_convert": 5},
    {"load_in_8bit": "yes"},
    {"load_in_4bit": "yes"},
    *({}, [], "gptq", 5, True),
]
REFUSED: list[tuple[str, Any]] = [
    *(("num_attention_heads", odd) for odd in (0, -1, 3, "4", 4.5, None, [4], True, 10**9, 10**30)),
    *(("num_key_value_heads", odd) for odd in (0, -1, 3, "x", 10**9)),
    *(("num_hidden_layers", odd) for odd in (0, -1, "2", 2.5, None, [2], 2_000_000, 10**18, 1e300)),
    *(("hidden_size", odd) for odd in (0, -1, "16", None, 7, 10**12)),
    *(("vocab_size", odd) for odd in (0, -1, "x", None, 10**12)),
    *(("intermediate_size", odd) for odd in (0, -5, "x", 10**12)),
    *(("head_dim", odd) for odd in (0, -1, "x", 10**12)),
    *(("model_type", odd) for odd in (5, [], {}, "unknown", "bert", "\x1b[31m")),
    *(("rope_scaling", odd) for odd in ("x", 5, {"rope_type": "unknown"}, {"rope_type": "dynamic", "factor": "x"})),
    *(("text_config", odd) for odd in ("x", 5, {}, [], {"model_type": "llama"}, {"num_hidden_layers": 10**7})),
    *(("dtype", odd) for odd in ("unknown", ["float32"])),
    *(("logit_scale", odd) for odd in ("x", [1])),
    ("logits_scaling", "x"),
    ("pad_token_id", 10**9),
    ("hidden_act", None),
    ("layer_types", [5]),
    ("id2label", "x"),
    ("num_labels", "x"),
    ("return_dict", False),
    ("output_hidden_states", "x"),
    ("to_dict", 5),
    ("num_experts", 10**9),
    ("vision_config", {"num_hidden_layers": 10**7}),
]
CONTENTS = ["", "[]", "5", "null", "{", "{}", '{"model_type": "nothing_known"}', "\0"]
CONTENTS += ["[" * 100_000, '{"a":' * 100_000, '{"num_hidden_layers":' + "9" * 10_000]


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model("Llama", tmp_path_factory.mktemp("llama"))


@pytest.fixture
def folder(llama: Path, tmp_path: Path) -> Path:
    return shutil.copytree(llama, tmp_path / "model")


def check_refused(folder: Path, **settings: Any) -> str:
    started = time.monotonic()
    with pytest.raises(InputError) as refused:
        load_model(folder, ScoringRecipe(**settings))
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 1_000
    assert time.monotonic() - started < 30
    return refused.value.what


@pytest.mark.parametrize("dequantise", [False, True])
@pytest.mark.parametrize("quantisation", QUANTISATIONS, ids=str)
def test_an_unusable_quantisation_is_refused_in_one_line(quantisation: Any, dequantise: bool, folder: Path) -> None:
    change_config(folder, quantization_config=quantisation)

    message = check_refused(folder, dequantise=dequantise)

    assert any(part in message for part in ("quantized", "weights", "config.json cannot be read", "cannot be loaded"))


@pytest.mark.parametrize(("name", "odd"), REFUSED, ids=str)
def test_an_odd_value_is_refused_in_one_line(name: str, odd: Any, folder: Path) -> None:
    change_config(folder, **{name: odd})

    check_refused(folder)


@pytest.mark.parametrize("content", CONTENTS, ids=lambda content: content[:12])
def test_an_unknown_config_is_refused_in_one_line(content: str, folder: Path) -> None:
    (folder / "config.json").write_text(content)

    assert "config.json cannot be read" in check_refused(folder)


def test_the_number_of_layers_is_limited_by_the_weights(folder: Path) -> None:
    change_config(folder, num_hidden_layers=2_000_000)

    assert "num_hidden_layers must be at most 21, the number of tensors in its weights" in check_refused(folder)


@pytest.mark.parametrize("positions", [0, -1])
def test_null_quantisation_and_no_position_limit_are_accepted(positions: int, folder: Path) -> None:
    change_config(folder, quantization_config=None, max_position_embeddings=positions)

    model = load_model(folder, ScoringRecipe())

    assert (model.metadata["quantization"], model.max_tokens) == (None, None)


@pytest.mark.parametrize("name", MODELS)
def test_sizes_of_known_models_are_accepted(name: str, tmp_path: Path) -> None:
    check_config_sizes(save_model(name, tmp_path))
