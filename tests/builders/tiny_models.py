"""Models of many architectures with about ten thousand seeded weights each."""

import json
from pathlib import Path
from typing import Any

import pytest

WORDS = 500
_DENSE = {
    "vocab_size": WORDS,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "initializer_range": 0.3,  # so that the context changes the logits
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_MOE = {"num_experts_per_tok": 2, "head_dim": 16}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "Llama": ("LlamaForCausalLM", _DENSE),
    "Mistral": ("MistralForCausalLM", _DENSE | {"sliding_window": 8}),
    "GptOss": ("GptOssForCausalLM", _DENSE | _MOE | {"num_local_experts": 4, "sliding_window": 16}),
    "Qwen3Moe": ("Qwen3MoeForCausalLM", _DENSE | _MOE | {"num_experts": 4, "moe_intermediate_size": 16}),
    "Granite": ("GraniteForCausalLM", _DENSE | {"logits_scaling": 3.0}),
    "Gemma2": ("Gemma2ForCausalLM", _DENSE | {"head_dim": 16, "sliding_window": 16}),
    "GPT2": ("GPT2LMHeadModel", {"vocab_size": WORDS, "n_embd": 32, "n_layer": 2, "n_head": 4, "initializer_range": 0.3}
             | {"bos_token_id": 1, "eos_token_id": 2}),
    "Mamba": ("MambaForCausalLM", {"vocab_size": WORDS, "hidden_size": 32, "num_hidden_layers": 2}),
}  # fmt: skip
PACKED = ("Llama", "Mistral", "GptOss", "Qwen3Moe", "Granite", "GPT2")


def build_model(name: str, **more: Any) -> Any:
    """Build a model with seeded weights."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    architecture, settings = MODELS[name]
    kind = getattr(transformers, architecture)
    torch.manual_seed(len(name))
    return kind(kind.config_class(**settings | more)).eval()


def save_model(name: str, folder: Path, **more: Any) -> Path:
    """Save a model without a tokenizer; return the folder."""
    build_model(name, **more).save_pretrained(folder)
    return folder


def change_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
