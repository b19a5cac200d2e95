"""Files of a language model: configs, tokenizer files and weights.

Weights must be in safetensors: a pickle can run code when it is read. A model with its own code is rejected. Only files
that loading needs are pinned. The pin's manifest also names the other files, except hidden files.
"""

import contextlib
import json
from collections.abc import Callable, Iterable, Mapping, Set
from fnmatch import fnmatchcase
from typing import Any

from pipeline_assets.build.pins.raw_pin import ChosenFiles
from pipeline_assets.corpus.chat_templates.template import is_template_file
from pipeline_assets.corpus.tokens.hf_tokenizer import TOKENIZER_FILE
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.recipe_yaml import section_at

CONFIG_FILE, WEIGHTS_FILE, INDEX_FILE = "config.json", "model.safetensors", "model.safetensors.index.json"
_EXTRA_FILES = (
    *(CONFIG_FILE, "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"),
    *("added_tokens.json", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model"),
    *("vocab.json", "vocab.txt", "merges.txt", "chat_template.*"),
)
_MAX_JSON_BYTES = 1 << 28  # an index of 100,000 tensors has 10 MB
_WHOLE_MODEL_FIX = "use a complete model"
_FORMAT_FIX = "use a model in the format of transformers: config.json, and weights in safetensors"


def choose_model_files(sizes: Mapping[str, int], read_file: Callable[[str], bytes], where: str) -> ChosenFiles:
    """Choose the files that loading a model needs; `where` names the model in errors.

    `sizes` has the sizes in bytes of all files of the model. `read_file` is called only for the config and the index of
    the weights. Raise InputError if the config or the safetensors weights are missing or unusable, or if the model has
    its own code.
    """

    def read_mapping(name: str) -> dict[str, Any]:
        """Read a JSON object that may contain `Infinity`, as some configs do."""
        if sizes[name] > _MAX_JSON_BYTES:
            raise InputError(f"{name} is longer than {_MAX_JSON_BYTES:,} bytes", where, _WHOLE_MODEL_FIX)
        with contextlib.suppress(ValueError, RecursionError):
            if isinstance(value := json.loads(read_file(name)), dict):
                return value
        raise InputError(f"{name} is not a JSON object", where, _WHOLE_MODEL_FIX)

    if CONFIG_FILE not in sizes:
        raise InputError(f"{CONFIG_FILE} not found", where, _FORMAT_FIX)
    config, top = read_mapping(CONFIG_FILE), {name for name in sizes if "/" not in name}
    in_config = [f"`auto_map` in {CONFIG_FILE}"] if "auto_map" in config else []
    code = sorted(name for name in top if name.endswith(".py")) or in_config
    if code:
        fix = "use a model whose architecture is part of transformers"
        raise InputError(f"the model has its own code ({code[0]}), which is never run", where, fix)
    extra = {name for name in top if any(fnmatchcase(name, pattern) for pattern in _EXTRA_FILES)}
    chosen = extra | _weight_files(sizes.keys(), read_mapping, where)
    left_out = sorted(name for name in sizes.keys() - chosen if "/." not in f"/{name}")
    return ChosenFiles(tuple(sorted(chosen)), {**_config_properties(config), "left_out": left_out})


def choose_template_files(names: Iterable[str], where: str) -> ChosenFiles:
    """Choose the files of a chat template; InputError if `tokenizer.json` is missing."""
    chosen = sorted(filter(is_template_file, names))
    if TOKENIZER_FILE not in chosen:
        raise InputError(f"{TOKENIZER_FILE} not found", where, "use a model in the format of transformers")
    return ChosenFiles(tuple(chosen), {})


def _weight_files(names: Set[str], read_mapping: Callable[[str], dict[str, Any]], where: str) -> set[str]:
    """Return the names of the safetensors files: a single one, or an index and shards."""
    if WEIGHTS_FILE in names:
        return {WEIGHTS_FILE}
    if INDEX_FILE not in names:
        pickles = sorted(name for name in names if fnmatchcase(name, "pytorch_model*.bin"))
        if pickles:
            what = f"the weights are a pickle ({pickles[0]}), which can run code when it is read"
            raise InputError(what, where, "convert them to safetensors, or use a revision with safetensors")
        raise InputError(f"neither {WEIGHTS_FILE} nor {INDEX_FILE} found", where, _FORMAT_FIX)
    shards = {str(name) for name in section_at(read_mapping(INDEX_FILE), "weight_map").values()}
    unusable = sorted(name for name in shards if name not in names or not name.endswith(".safetensors"))
    if unusable or not shards:
        what = f"{unusable[0]}, which is missing or not in safetensors" if unusable else "no file"
        raise InputError(f"{INDEX_FILE} lists {what}", where, _WHOLE_MODEL_FIX)
    return {INDEX_FILE, *shards}


def _config_properties(config: Mapping[str, Any]) -> dict[str, Any]:
    """Read a model's type, size and format from its config; None if unknown."""
    values = {**section_at(config, "text_config"), **config}  # multimodal models have a `text_config`
    architectures = config.get("architectures")
    return {
        "architecture": _text_or_none(architectures[0]) if isinstance(architectures, list) and architectures else None,
        "model_type": _text_or_none(config.get("model_type")),
        "dtype": _text_or_none(values.get("dtype", values.get("torch_dtype"))),
        "quantization": _text_or_none(section_at(config, "quantization_config").get("quant_method")),
        "vocabulary_size": _count_or_none(values.get("vocab_size")),
        "max_positions": _count_or_none(values.get("max_position_embeddings", values.get("n_positions"))),
    }


def _text_or_none(value: object) -> str | None:
    return value if isinstance(value, str) and value.isprintable() else None


def _count_or_none(value: object) -> int | None:
    return value if type(value) is int and 0 < value < 1 << 63 else None
