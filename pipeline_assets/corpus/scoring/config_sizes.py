"""Checks of the numbers in a model's config, before a library builds the model.

A library builds as much as the numbers request: millions of layers take hours. An error that a library raises after
these checks is also one line, by `refusing`.
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

_POSITIVE = (
    *("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_attention_heads", "n_head", "n_heads"),
    *("num_key_value_heads", "hidden_size", "n_embd", "d_model", "head_dim", "vocab_size"),
)
_LAYERS = re.compile(r"(num|n)_(\w+_)?(layers?|blocks?)|(en|de)coder_layers")
_EXPERTS = re.compile(r"(num|n)_(\w+_)?experts?")
_MOST_EXPERTS = 10_000  # of a layer; the largest models have less than 1,000


@contextmanager
def wrap_library_errors(what: str, folder: Path, fix: str) -> Iterator[None]:
    """Raise InputError for any error that a library raises over a model's files.

    Libraries raise errors of any class, for any odd value.
    """
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        reason = one_line(error, 200) or type(error).__name__
        raise InputError(f"{what} ({reason})", folder, fix) from None


def check_config_sizes(folder: Path) -> None:
    """Check that sizes in a config are positive, and that its layers can have weights.

    Raises:
        InputError: the config is not a mapping; a size is below 1; there are more layers than tensors.
    """
    with wrap_library_errors("its config can't be read", folder, "give the whole model"):
        config = json.loads((folder / "config.json").read_bytes())
        if not isinstance(config, dict):
            raise ValueError("it is no JSON mapping")
    fix = "give a model whose config belongs to its weights"
    for section in (config, section_at(config, "text_config")):
        for name in _POSITIVE:
            if _is_number(value := section.get(name)) and value < 1:
                raise InputError(f"its config can't be read ({name} must be at least 1, got {value})", folder, fix)
    counts = [(name, value) for name, value in _numbers(config) if _LAYERS.fullmatch(name) or _EXPERTS.fullmatch(name)]
    tensors = _count_tensors(folder) if counts else 0
    for name, value in counts:
        most, of = (tensors, "its weights have tensors") if _LAYERS.fullmatch(name) else (_MOST_EXPERTS, "models have")
        if value > most:
            what = f"its config can't be read ({name} must be at most {most:,}, as many as {of}, got {value:.6g})"
            raise InputError(what, folder, fix)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _numbers(value: Any) -> Iterator[tuple[str, float]]:
    """Yield name and value of each number in a config, also of its sections."""
    for name, inner in value.items() if isinstance(value, Mapping) else ():
        if _is_number(inner):
            yield name, inner
        else:
            yield from _numbers(inner)


def _count_tensors(folder: Path) -> int:
    """Count the tensors of all weights in a folder, by the heads of their files."""
    count = 0
    for path in folder.rglob("*.safetensors"):
        fix = "fetch or copy the model again"
        with (
            wrap_library_errors("its weights are cut short or damaged", folder, fix),
            safe_open(path, "numpy") as weights,
        ):
            count += len(weights.keys())
    return count
