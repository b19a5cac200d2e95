"""Loading and checking of causal language models of `transformers`.

Cases that `transformers` silently accepts are errors here: quantized weights that would be expanded, an attention
implementation that would be replaced by a slower one, missing weights that would be initialised at random. After
loading, `nll.score_rows` scores a few rows of random ids. The scores must be close to those from the model's own
logits, which are computed one row at a time.
"""

import functools
import importlib.util
import inspect
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from safetensors import SafetensorError

from pipeline_assets.corpus.scoring.config_sizes import check_config_sizes, wrap_library_errors
from pipeline_assets.corpus.scoring.nll import LanguageModel, LmHead, score_rows
from pipeline_assets.corpus.scoring.recipe import ScoringRecipe
from pipeline_assets.corpus.scoring.row_attention import ROW_ATTENTION, attend_by_rows
from pipeline_assets.corpus.scoring.token_rows import TokenRow
from pipeline_assets.spine.errors import InputError, RecipeKey, UsageError, one_line
from pipeline_assets.spine.recipe_yaml import section_at

_RANDOM_ROW_LENGTHS = 24, 7, 40
_TOLERANCE = {torch.float32: 1e-4, torch.float16: 0.02, torch.bfloat16: 0.1}  # nats per token, for the random rows
_MODEL_FIX = "use a causal language model that transformers can load on this machine"
_QUANTISATION_PACKAGES = ("accelerate", "kernels", "triton")  # each method of quantization needs some of these


def load_model(folder: Path, recipe: ScoringRecipe) -> LanguageModel:
    """Load the model in a folder, and check that it scores rows correctly.

    The recipe's keys device, dtype, attention, spreads, dequantise and threads are read. Raise UsageError if the recipe
    requires a GPU that is missing, or an attention implementation that the model lacks. Raise InputError if the model
    is damaged or not supported, or scores rows wrongly.
    """
    if recipe.device == "cuda" and not torch.cuda.is_available():
        raise UsageError("no GPU found that PyTorch can use", "device", "set `device: cpu`, or install a CUDA build")
    torch.set_num_threads(recipe.threads)
    check_config_sizes(folder)
    fix = "use a model that this version of transformers supports"
    with wrap_library_errors("config.json cannot be read", folder, fix):
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    check_quantisation(config, folder, recipe.dequantise)
    network = _load_network(folder, config, recipe)
    with wrap_library_errors("the model's LM head cannot be used", folder, _MODEL_FIX):
        head = _find_head(network, folder)
    has_experts = _has_module("Experts", network)
    metadata = {
        "architecture": type(network).__name__,
        "attention": network.config._attn_implementation,
        "experts": getattr(network.config, "_experts_implementation", None) if has_experts else None,
        "quantization": (getattr(config, "quantization_config", None) or {}).get("quant_method"),
    }
    limit = getattr(config.get_text_config(), "max_position_embeddings", None) or 0
    needs_single_row_batches = _positions_depend_on_longest_row(network, folder)
    model = LanguageModel(network, head, False, needs_single_row_batches, limit if limit > 0 else None, metadata)
    with wrap_library_errors("model cannot score rows", folder, _MODEL_FIX):
        return _check_model(model, folder, recipe)


def _positions_depend_on_longest_row(network: Any, folder: Path) -> bool:
    """Check whether a row's positions depend on the longest row of its batch.

    Raise InputError for dynamic RoPE, whose positions also depend on earlier batches.
    """
    values = [getattr(module, "rope_type", None) for module in network.modules()]
    types = {str(name) for value in values for name in (value.values() if isinstance(value, dict) else [value])}
    if any("dynamic" in name for name in types):
        what = "the model's positions (dynamic RoPE) use earlier rows, so scores would depend on the order of rows"
        raise InputError(what, folder, "use a model with another RoPE type, or set another `rope_type` in its config")
    return "longrope" in types


def check_quantisation(config: Any, folder: Path, dequantises: bool) -> None:
    """Raise InputError if `transformers` would expand or reject quantized weights.

    If `dequantises`, nothing is checked, because the recipe requests expanded weights.
    """
    quantization_config = getattr(config, "quantization_config", None)
    if quantization_config is None or dequantises:
        return
    method = str(section_at(vars(config), "quantization_config").get("quant_method"))[:40]
    packages = [name for name in _QUANTISATION_PACKAGES if importlib.util.find_spec(name) is None]
    missing = f"install {', '.join(packages)}" if packages else "use a GPU that supports them"
    fix = f"{missing}, or set `dequantise`, which needs more memory"
    with _silence_transformers(), wrap_library_errors(f"{method} weights cannot be used on this machine", folder, fix):
        quantizer = _make_quantizer(quantization_config)
        quantizer.validate_environment(device_map=None)
    if getattr(quantizer.quantization_config, "dequantize", False):
        what = f"{method} weights would become bfloat16, about four times as large"
        raise InputError(what, folder, fix)


def _make_quantizer(quantization_config: Any) -> Any:
    from transformers.quantizers.auto import AutoHfQuantizer  # imports what all models need: seconds

    return AutoHfQuantizer.from_config(quantization_config, pre_quantized=True)


def _load_network(folder: Path, config: Any, recipe: ScoringRecipe) -> Any:
    extra_options: dict[str, Any] = {}
    if recipe.device == "cuda":
        extra_options["device_map"] = "auto" if recipe.spreads else {"": torch.cuda.current_device()}
    if recipe.dequantise and getattr(config, "quantization_config", None) is not None:
        with wrap_library_errors("weights cannot be dequantized", folder, _MODEL_FIX):
            quantizer = _make_quantizer(config.quantization_config)
            extra_options["quantization_config"] = type(quantizer.quantization_config)(dequantize=True)
    loader: Any = transformers.AutoModelForCausalLM
    with _silence_transformers():
        try:
            network, loading_info = loader.from_pretrained(
                folder,
                config=config,
                dtype=getattr(torch, recipe.resolved_dtype),
                attn_implementation=recipe.attention,
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
                output_loading_info=True,
                **extra_options,
            )
        except SafetensorError as error:
            what = f"weights are truncated or damaged ({one_line(error, 200)})"
            raise InputError(what, folder, "fetch or copy the model again") from None
        except Exception as error:  # an odd value in a config raises any class
            if recipe.attention is not None and "attn" in str(error).lower().replace("attention", "attn"):
                what = f"model cannot be loaded with {recipe.attention} ({one_line(error, 300)})"
                fix = "remove it, or name an attention that the model supports: most support sdpa and eager"
                raise UsageError(what, RecipeKey("scoring.attention"), fix) from None
            what = f"model cannot be loaded ({one_line(error, 300) or type(error).__name__})"
            if "ignore_mismatched_sizes" in str(error):
                what = "model cannot be loaded: the shapes of weights contradict its config"
            raise InputError(what, folder, _MODEL_FIX) from None
    if set(map(str, getattr(network, "hf_device_map", {}).values())) & {"cpu", "disk", "meta"}:
        fix = "score on more or larger GPUs (`spreads` uses all GPUs of a machine), or use a smaller model"
        raise InputError("model is larger than the memory of the GPUs", folder, fix)
    wrong = sorted(map(str, (*loading_info["missing_keys"], *loading_info["mismatched_keys"])))
    if wrong:
        what = f"weights are missing or have a wrong shape, such as {wrong[0]} ({len(wrong):,} in all)"
        raise InputError(what, folder, "use a folder with all files of the model; missing weights are not initialised")
    return network.eval()


def _has_module(class_name_part: str, network: Any) -> bool:
    return any(class_name_part in type(module).__name__ for module in network.modules())


def _find_head(network: Any, folder: Path) -> LmHead:
    head, config = network.get_output_embeddings(), network.config.get_text_config()
    if not isinstance(head, torch.nn.Linear) or not head.weight.is_floating_point():
        what = f"LM head must be a matrix of floats, got {type(head).__name__}"
        raise InputError(what, folder, "use a model whose LM head is not quantized")
    return LmHead(head.weight, head.bias, _logit_scale(config), getattr(config, "final_logit_softcapping", None))


def _logit_scale(config: Any) -> float:
    """Return the scale of a model's logits; only Cohere and Granite configs set one."""
    return float(getattr(config, "logit_scale", None) or 1 / (getattr(config, "logits_scaling", None) or 1))


@torch.inference_mode()
def _check_model(model: LanguageModel, folder: Path, recipe: ScoringRecipe) -> LanguageModel:
    """Check a model on random rows; return the model, which packs rows if possible.

    Mean NLLs must be close to `_reference_nll`. Packed rows are tried if the recipe names no attention; if their scores
    are wrong, rows are padded. Raise InputError if padded rows fail, too, or need eager attention on a GPU.
    """
    vocabulary_size = min(model.head.weight.shape[0], model.network.get_input_embeddings().weight.shape[0])
    generator = np.random.default_rng(0)
    rows = [generator.integers(0, vocabulary_size, length, dtype=np.int32) for length in _RANDOM_ROW_LENGTHS]
    expected = [_reference_nll(model.network, row) for row in rows]
    tolerance, default_attention = _TOLERANCE[model.head.weight.dtype], str(model.metadata["attention"])
    if recipe.device == "cuda" and not recipe.spreads:  # spread modules have hooks in their `forward`
        _fuse_norms(model.network)
    if recipe.attention is None and _try_row_attention(model.network):
        kernel = "varlen_attn" if recipe.device == "cuda" else "scaled_dot_product_attention"
        packed = replace(model, is_packed=True, metadata={**model.metadata, "attention": f"{ROW_ATTENTION} ({kernel})"})
        means = _mean_nlls(packed, rows)
        # In bfloat16 equal scores prove little: a state space model may carry less into the next row than the
        # tolerance. So a change of the first row must not change the scores of the other rows.
        later_means = _mean_nlls(packed, [rows[0][::-1], *rows[1:]])[1:]
        if _are_close(means, expected, tolerance) and _are_close(later_means, means[1:], tolerance / 10):
            return packed
        model.network.set_attn_implementation(default_attention)
    if recipe.device == "cuda" and default_attention == "eager" and _has_module("Attention", model.network):
        fix = "install flash-attn and set `attention` to flash_attention_2, or use another model"
        raise InputError("attention would fall back to eager, which is slow and needs a lot of memory", folder, fix)
    if not _are_close(_mean_nlls(model, rows), expected, tolerance):
        what = "the model's logits are not the product of its last hidden states and its LM head: scores would be wrong"
        raise InputError(what, folder, "use another model")
    return model


def _try_row_attention(network: Any) -> bool:
    """Set the attention for packed rows; return whether the model supports it."""
    transformers.AttentionInterface.register(ROW_ATTENTION, attend_by_rows)
    with _silence_transformers():
        try:
            network.set_attn_implementation(ROW_ATTENTION)
        except (ImportError, ValueError):
            return False
    return bool(network.config._attn_implementation == ROW_ATTENTION)


def _reference_nll(network: Any, row: NDArray[np.int32]) -> float:
    """Compute the mean NLL of a row's tokens after the first, from the model's logits."""
    ids = torch.from_numpy(row.astype(np.int64)).to(network.device)
    logits = network(input_ids=ids[None], use_cache=False).logits[0, :-1].float()
    return float(torch.nn.functional.cross_entropy(logits, ids[1:].to(logits.device)))


def _mean_nlls(model: LanguageModel, rows: Sequence[NDArray[np.int32]]) -> list[float]:
    """Return the mean NLL of each row; an empty list if the attention does not work."""
    token_rows = [TokenRow(row, np.arange(len(row)) > 0) for row in rows]
    try:
        scores = score_rows(model, token_rows, max(_RANDOM_ROW_LENGTHS) * len(rows)).rows
    except (ImportError, TypeError, ValueError):  # the model passes arguments that the attention does not support
        return []
    return [(score.nll_sum or 0) / (len(row) - 1) for score, row in zip(scores, rows, strict=True)]


def _are_close(means: Sequence[float], expected: Sequence[float], tolerance: float) -> bool:
    # equal_nan, because a NaN weight makes only the rows that use it unscorable, not the whole model.
    return len(means) == len(expected) and np.allclose(means, expected, rtol=0, atol=tolerance, equal_nan=True)


def _fuse_norms(network: Any) -> None:
    """Replace each RMS norm of `transformers` (eight GPU kernels) with one kernel.

    A norm stays unchanged if the kernel computes a different result for a sample.
    """
    for module in network.modules():
        weight: Any = getattr(module, "weight", None)
        eps = getattr(module, "variance_epsilon", None)
        is_norm = type(module).__name__.endswith("RMSNorm") and weight is not None and eps is not None
        if is_norm and len(inspect.signature(module.forward).parameters) == 1:  # gated norms have two
            rms_norm = torch.nn.functional.rms_norm
            norm = functools.partial(rms_norm, normalized_shape=weight.shape, weight=weight, eps=eps)
            sample = torch.linspace(-3, 3, weight.numel(), device=weight.device).to(weight.dtype)
            if torch.allclose(module(sample), norm(sample), rtol=2**-6):  # some norms add 1 to the weight
                module.forward = norm


@contextmanager
def _silence_transformers() -> Iterator[None]:
    """Silence the log and progress bars of `transformers` in a `with` block."""
    logger, bars = logging.getLogger("transformers"), cast(Any, transformers.utils.logging)
    former_level, had_bars = logger.level, bars.is_progress_bar_enabled()
    logger.setLevel(logging.ERROR)
    bars.disable_progress_bar()
    try:
        yield
    finally:
        logger.setLevel(former_level)
        if had_bars:
            bars.enable_progress_bar()
