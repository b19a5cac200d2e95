"""Which files loading a language model takes: its configs, those of its tokenizer, its weights in safetensors.

Weights in other formats, folders and pages beside them are left out, and named. A model that runs code of its own, or
whose weights are a pickle, which can, is refused.
"""

import contextlib
import json
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.recipe import section_at

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
_BESIDE = (
    *(CONFIG, "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"),
    *("added_tokens.json", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model"),
    *("vocab.json", "vocab.txt", "merges.txt", "chat_template.*"),
)
_MOST_JSON_BYTES = 1 << 28  # an index of 100,000 tensors has 10 MB
_WHOLE = "give the whole model"
_ANOTHER = "give a model that transformers reads: config.json, and weights in safetensors"


@dataclass(frozen=True)
class ModelFiles:
    """The files of a model that loading it takes, sorted, and what a manifest says of it."""

    names: tuple[str, ...]
    decisions: Mapping[str, Any]


def choose_files(sizes: Mapping[str, int], read: Callable[[str], bytes], where: str) -> ModelFiles:
    """The files that loading a model takes.

    Args:
        sizes: bytes of all files that are there, by path.
        read: gives the content of one; that of the config is asked for, and of the index of the weights.
        where: the model, for errors.
    Raises:
        InputError: a file is missing, or can't be read; no weights are in safetensors; it runs code of its own.
    """

    def mapping(name: str) -> dict[str, Any]:
        """What a JSON file says, by Python's parser: configs of state space models have `Infinity`."""
        if sizes[name] > _MOST_JSON_BYTES:
            raise InputError(f"{name} has more than {_MOST_JSON_BYTES:,} bytes", where, _WHOLE)
        with contextlib.suppress(ValueError, RecursionError):
            if isinstance(value := json.loads(read(name)), dict):
                return value
        raise InputError(f"{name} is no JSON, or no mapping", where, _WHOLE)

    if CONFIG not in sizes:
        raise InputError(f"it has no {CONFIG}", where, _ANOTHER)
    config, top = mapping(CONFIG), {name for name in sizes if "/" not in name}
    code = sorted(name for name in top if name.endswith(".py")) or [f"`auto_map` in {CONFIG}"] * ("auto_map" in config)
    if code:
        fix = "give a model whose architecture transformers has itself"
        raise InputError(f"it runs code of its own ({code[0]}), and no code of a model is run here", where, fix)
    beside = {name for name in top if any(fnmatchcase(name, pattern) for pattern in _BESIDE)}
    chosen = beside | _weights(sizes.keys(), mapping, where)
    left_out = sorted(name for name in sizes.keys() - chosen if "/." not in f"/{name}")
    return ModelFiles(tuple(sorted(chosen)), {**_said_by(config), "left_out": left_out})


def _weights(names: Set[str], mapping: Callable[[str], dict[str, Any]], where: str) -> set[str]:
    """The one file of the weights, which transformers prefers; else their index, and all that it names."""
    if WEIGHTS in names:
        return {WEIGHTS}
    if INDEX not in names:
        pickles = sorted(name for name in names if fnmatchcase(name, "pytorch_model*.bin"))
        if pickles:
            what = f"its weights are a pickle ({pickles[0]}), which can run code when it is read"
            raise InputError(what, where, "convert them to safetensors, or give a revision that has these")
        raise InputError(f"it has neither {WEIGHTS} nor {INDEX}", where, _ANOTHER)
    shards = {str(name) for name in section_at(mapping(INDEX), "weight_map").values()}
    unfit = sorted(name for name in shards if name not in names or not name.endswith(".safetensors"))
    if unfit or not shards:
        what = f"{unfit[0]}, and there is no such file in safetensors" if unfit else "no file"
        raise InputError(f"{INDEX} names {what}", where, _WHOLE)
    return {INDEX, *shards}


def _said_by(config: Mapping[str, Any]) -> dict[str, Any]:
    """What a config says of its model, None where it doesn't."""
    said = {**section_at(config, "text_config"), **config}  # the first is of a model that sees or hears too
    architectures = config.get("architectures")
    return {
        "architecture": _text(architectures[0]) if isinstance(architectures, list) and architectures else None,
        "model_type": _text(config.get("model_type")),
        "dtype": _text(said.get("dtype", said.get("torch_dtype"))),
        "quantization": _text(section_at(config, "quantization_config").get("quant_method")),
        "vocabulary_size": _count(said.get("vocab_size")),
        "max_positions": _count(said.get("max_position_embeddings", said.get("n_positions"))),
    }


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value.isprintable() else None


def _count(value: object) -> int | None:
    return value if type(value) is int and 0 < value < 1 << 63 else None
