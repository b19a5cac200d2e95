"""Loads a causal language model of `transformers` so that it does what it is said to do, or refuses it.

What happens in silence elsewhere is an error here: quantised weights that would be blown up, an attention that would
fall back to a slow one, weights that are missing and would be made up. Once loaded, a few rows of made ids are scored
by the model itself, alone and with all logits, and by the way that rows are scored here.
"""

import importlib.util
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
from transformers import AttentionInterface
from transformers.quantizers.auto import AutoHfQuantizer

from pipeline_assets.corpus.scoring.config_sizes import check_config_sizes, wrap_library_errors
from pipeline_assets.corpus.scoring.nll import LanguageModel, LmHead, score_rows
from pipeline_assets.corpus.scoring.recipe import ScoringRecipe
from pipeline_assets.corpus.scoring.row_attention import BY_ROWS, attend_by_rows
from pipeline_assets.corpus.scoring.token_rows import TokenRow
from pipeline_assets.spine.errors import InputError, RecipeKey, UsageError, one_line
from pipeline_assets.spine.recipe_yaml import section_at

_MADE_LENGTHS = 24, 7, 40
_TOLERANCE = {torch.float32: 1e-4, torch.float16: 0.02, torch.bfloat16: 0.1}  # of made rows, nats a token
_ANOTHER = "give a causal language model that transformers loads here"
_NEEDED = ("accelerate", "kernels", "triton")  # by quantised weights, some by one method, some by another


AttentionInterface.register(BY_ROWS, attend_by_rows)


def load_model(folder: Path, recipe: ScoringRecipe) -> LanguageModel:
    """The model that lies in a folder, checked.

    Args:
        recipe: its device, dtype, attention, spreads, dequantise and threads say how; all of these change bits.
    Raises:
        InputError: it can't be loaded, lacks weights, or would be another than its files say: see above.
        UsageError: the device isn't there, or can't do this.
    """
    if recipe.device == "cuda" and not torch.cuda.is_available():
        raise UsageError("there is no GPU that PyTorch can use", "device", "set `device: cpu`, or install a CUDA build")
    torch.set_num_threads(recipe.threads)
    check_config_sizes(folder)
    with wrap_library_errors(
        "its config can't be read", folder, "give a model that this version of transformers knows"
    ):
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    check_quantisation(config, folder, recipe.dequantise)
    network = _load(folder, config, recipe)
    with wrap_library_errors("its config can't be used", folder, _ANOTHER):
        head = _find_head(network, folder)
    facts = {
        "architecture": type(network).__name__,
        "attention": network.config._attn_implementation,
        "experts": getattr(network.config, "_experts_implementation", None) if _has_value("Experts", network) else None,
        "quantization": (getattr(config, "quantization_config", None) or {}).get("quant_method"),
    }
    limit = getattr(config.get_text_config(), "max_position_embeddings", None) or 0
    is_alone = _positions_go_by_the_longest(network, folder)
    with wrap_library_errors("it can't be used", folder, _ANOTHER):
        return _checked(
            LanguageModel(network, head, False, is_alone, limit if limit > 0 else None, facts), folder, recipe
        )


def _positions_go_by_the_longest(network: Any, folder: Path) -> bool:
    """Whether RoPE depends on the longest row of a batch; refused if it depends on all batches before."""
    said = [getattr(module, "rope_type", None) for module in network.modules()]
    types = {str(one) for found in said for one in (found.values() if isinstance(found, dict) else [found])}
    if any("dynamic" in one for one in types):
        what = "its positions (dynamic RoPE) depend on what it read before: scores would go by the order of the rows"
        raise InputError(what, folder, "take a model with another RoPE, or another `rope_type` in its config")
    return "longrope" in types


def check_quantisation(config: Any, folder: Path, dequantises: bool) -> None:
    """Whether quantised weights stay quantised, from the config alone.

    Raises:
        InputError: they would be blown up in silence; names the packages that are missing.
    """
    stated = getattr(config, "quantization_config", None)
    if stated is None or dequantises:
        return
    method = str(section_at(vars(config), "quantization_config").get("quant_method"))[:40]
    missing = ", ".join(name for name in _NEEDED if importlib.util.find_spec(name) is None) or "a GPU that can"
    fix = f"install what is missing ({missing}), or set `dequantise`, for which there must be memory"
    with _quiet(), wrap_library_errors(f"its {method} weights can't be used here", folder, fix):
        quantizer = AutoHfQuantizer.from_config(stated, pre_quantized=True)
        quantizer.validate_environment(device_map=None)
    if getattr(quantizer.quantization_config, "dequantize", False):
        what = f"its weights are {method}, and would become bfloat16, about four times as large"
        raise InputError(what, folder, fix)


def _load(folder: Path, config: Any, recipe: ScoringRecipe) -> Any:
    more: dict[str, Any] = {}
    if recipe.device == "cuda":
        more["device_map"] = "auto" if recipe.spreads else {"": torch.cuda.current_device()}
    if recipe.dequantise and getattr(config, "quantization_config", None) is not None:
        with wrap_library_errors("its weights can't be dequantised", folder, _ANOTHER):
            quantizer = AutoHfQuantizer.from_config(config.quantization_config, pre_quantized=True)
            more["quantization_config"] = type(quantizer.quantization_config)(dequantize=True)
    loader: Any = transformers.AutoModelForCausalLM
    with _quiet():
        try:
            network, told = loader.from_pretrained(
                folder,
                config=config,
                dtype=getattr(torch, recipe.resolved_dtype),
                attn_implementation=recipe.attention,
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
                output_loading_info=True,
                **more,
            )
        except SafetensorError as error:
            what = f"its weights are cut short or damaged ({one_line(error, 200)})"
            raise InputError(what, folder, "fetch or copy the model again") from None
        except Exception as error:  # of any class, for any odd value of a config
            if recipe.attention is not None and "attn" in str(error).lower().replace("attention", "attn"):
                what = f"it is {recipe.attention}, and the model can't be loaded so ({one_line(error, 300)})"
                fix = "leave it out, or name one that is there: sdpa and eager are for most models"
                raise UsageError(what, RecipeKey("scoring.attention"), fix) from None
            what = f"it can't be loaded ({one_line(error, 300) or type(error).__name__})"
            if "ignore_mismatched_sizes" in str(error):
                what = "it can't be loaded: weights have another shape than its config says"
            raise InputError(what, folder, _ANOTHER) from None
    if set(map(str, getattr(network, "hf_device_map", {}).values())) & {"cpu", "disk", "meta"}:
        fix = "score on more or larger GPUs (`spreads` takes all of a machine), or take a smaller model"
        raise InputError("it is larger than the memory of the GPUs", folder, fix)
    wrong = sorted(map(str, (*told["missing_keys"], *told["mismatched_keys"])))
    if wrong:
        what = f"{len(wrong)} of its weights are missing or of another shape, such as {wrong[0]}"
        raise InputError(what, folder, "give all files of the model: weights are not made up")
    return network.eval()


def _has_value(part: str, network: Any) -> bool:
    return any(part in type(module).__name__ for module in network.modules())


def _find_head(network: Any, folder: Path) -> LmHead:
    head, config = network.get_output_embeddings(), network.config.get_text_config()
    if not isinstance(head, torch.nn.Linear) or not head.weight.is_floating_point():
        what = f"its head is {type(head).__name__}, no matrix of floats"
        raise InputError(what, folder, "give a model whose LM head is not quantised")
    return LmHead(head.weight, head.bias, _find_scale(config), getattr(config, "final_logit_softcapping", None))


def _find_scale(config: Any) -> float:
    """As Cohere has it, or Granite."""
    return float(getattr(config, "logit_scale", None) or 1 / (getattr(config, "logits_scaling", None) or 1))


@torch.inference_mode()
def _checked(model: LanguageModel, folder: Path, recipe: ScoringRecipe) -> LanguageModel:
    """The model, packed if it gives the same so."""
    words = min(model.head.weight.shape[0], model.network.get_input_embeddings().weight.shape[0])
    generator = np.random.default_rng(0)
    rows = [generator.integers(0, words, length, dtype=np.int32) for length in _MADE_LENGTHS]
    asked = [_own_nll(model.network, row) for row in rows]
    tolerance, natural = _TOLERANCE[model.head.weight.dtype], str(model.facts["attention"])
    if recipe.attention is None and _can_be_packed(model.network):
        kernel = "varlen_attn" if recipe.device == "cuda" else "scaled_dot_product_attention"
        packed = replace(model, is_packed=True, facts={**model.facts, "attention": f"{BY_ROWS} ({kernel})"})
        if _is_near(packed, rows, asked, tolerance):
            return packed
        model.network.set_attn_implementation(natural)
    if recipe.device == "cuda" and natural == "eager" and _has_value("Attention", model.network):
        fix = "install flash-attn or kernels and name the attention in `attention`, or take another model"
        raise InputError("its attention would fall back to eager, which is slow and takes much memory", folder, fix)
    if not _is_near(model, rows, asked, tolerance):
        what = "its logits are no product of its last hidden states and its LM head, as far as this program knows"
        raise InputError(what, folder, "take another model; its scores would be wrong")
    return model


def _can_be_packed(network: Any) -> bool:
    with _quiet():
        try:
            network.set_attn_implementation(BY_ROWS)
        except (ImportError, ValueError):
            return False
    return bool(network.config._attn_implementation == BY_ROWS)


def _own_nll(network: Any, row: NDArray[np.int32]) -> float:
    """The mean NLL of all tokens but the first, as the model itself has it: all logits, of one row."""
    ids = torch.from_numpy(row.astype(np.int64)).to(network.device)
    logits = network(input_ids=ids[None], use_cache=False).logits[0, :-1].float()
    return float(torch.nn.functional.cross_entropy(logits, ids[1:].to(logits.device)))


def _is_near(model: LanguageModel, rows: Sequence[NDArray[np.int32]], asked: Sequence[float], tolerance: float) -> bool:
    made = [TokenRow(row, np.arange(len(row)) > 0) for row in rows]
    tokens = max(_MADE_LENGTHS) * len(rows)
    try:
        found = score_rows(model, made, tokens).rows
    except (ImportError, TypeError, ValueError):  # the model asks the attention for something else
        return False
    means = [(one.nll_sum or 0) / (len(row) - 1) for one, row in zip(found, rows, strict=True)]
    # A weight that is no number is told of the rows that meet it, not of the model.
    return bool(np.allclose(means, asked, rtol=0, atol=tolerance, equal_nan=True))


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what `transformers` logs: what matters of it is checked here."""
    logger, bars = logging.getLogger("transformers"), cast(Any, transformers.utils.logging)
    former, were_shown = logger.level, bars.is_progress_bar_enabled()
    logger.setLevel(logging.ERROR)
    bars.disable_progress_bar()
    try:
        yield
    finally:
        logger.setLevel(former)
        if were_shown:
            bars.enable_progress_bar()
