"""Checks of the numbers in a model's config, before a library builds the model.

A library builds as many layers as a config states, and millions of layers take hours.
"""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeGuard

from safetensors import safe_open

from pipeline_assets.spine.errors import InputError, one_line
from pipeline_assets.spine.recipe_yaml import section_at

_POSITIVE_KEYS = (
    *("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_attention_heads", "n_head", "n_heads"),
    *("num_key_value_heads", "hidden_size", "n_embd", "d_model", "head_dim", "vocab_size"),
)
_LAYER_KEY = re.compile(r"(num|n)_(\w+_)?(layers?|blocks?)|(en|de)coder_layers")
_EXPERT_KEY = re.compile(r"(num|n)_(\w+_)?experts?")
_MAX_EXPERTS = 10_000  # per layer; the largest models have fewer than 1,000


@contextmanager
def wrap_library_errors(what: str, folder: Path, fix: str) -> Iterator[None]:
    """Convert exceptions in a `with` block to InputErrors; InputErrors pass unchanged."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        reason = one_line(error, 200) or type(error).__name__
        raise InputError(f"{what} ({reason})", folder, fix) from None


def check_config_sizes(folder: Path) -> None:
    """Raise InputError if config.json is unreadable or has an impossible number.

    Sizes must be at least 1. A number of layers must not exceed the number of tensors in the weights, and a layer may
    have up to 10,000 experts.
    """
    with wrap_library_errors("config.json cannot be read", folder, "use a folder with the whole model"):
        config = json.loads((folder / "config.json").read_bytes())
        if not isinstance(config, dict):
            raise ValueError("expected a JSON mapping")
    fix = "use a model whose config matches its weights"
    for section in (config, section_at(config, "text_config")):
        for name in _POSITIVE_KEYS:
            if _is_number(value := section.get(name)) and value < 1:
                raise InputError(f"config.json is invalid ({name} must be at least 1, got {value})", folder, fix)
    numbers = _named_numbers(config)
    counts = [entry for entry in numbers if _LAYER_KEY.fullmatch(entry[0]) or _EXPERT_KEY.fullmatch(entry[0])]
    tensors = _count_tensors(folder) if counts else 0
    for name, value in counts:
        is_layers = _LAYER_KEY.fullmatch(name) is not None
        limit, reason = (
            (tensors, ", the number of tensors in its weights") if is_layers else (_MAX_EXPERTS, " per layer")
        )
        if value > limit:
            what = f"config.json is invalid ({name} must be at most {limit:,}{reason}, got {value:.6g})"
            raise InputError(what, folder, fix)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _named_numbers(section: Any) -> Iterator[tuple[str, float]]:
    """Yield the (name, value) pairs of all numbers in a config and its sections."""
    for name, inner in section.items() if isinstance(section, Mapping) else ():
        if _is_number(inner):
            yield name, inner
        else:
            yield from _named_numbers(inner)


def _count_tensors(folder: Path) -> int:
    """Count the tensors of all safetensors files in a folder, reading only headers."""
    count = 0
    for path in folder.rglob("*.safetensors"):
        fix = "fetch or copy the model again"
        with wrap_library_errors("weights are truncated or damaged", folder, fix), safe_open(path, "numpy") as weights:
            count += len(weights.keys())
    return count
