"""Toy model, to try scoring without a download."""

from pathlib import Path

from pipeline_assets.corpus.tokens.o200k_vocabulary import VOCABULARY_SIZE
from pipeline_assets.spine.install_hints import not_installed_error

_HIDDEN_SIZE = 16


def write_toy_model(folder: Path, seed: int = 0) -> Path:
    """Write a tiny Llama with the o200k Harmony vocabulary (13 MB); return the folder.

    The model's scores mean nothing. Equal seeds result in equal bytes; a model that is already in the folder is kept.
    Raise UsageError without PyTorch or transformers.
    """
    try:
        import torch
        import transformers
    except ImportError as error:
        raise not_installed_error(error, "scoring") from None
    if not (folder / "model.safetensors").is_file():
        config = transformers.LlamaConfig(
            vocab_size=VOCABULARY_SIZE,
            hidden_size=_HIDDEN_SIZE,
            intermediate_size=2 * _HIDDEN_SIZE,
            num_hidden_layers=1,
            num_attention_heads=2,
            max_position_embeddings=131_072,
            tie_word_embeddings=True,
            initializer_range=0.2,  # large enough that the scores of texts differ
        )
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            transformers.LlamaForCausalLM(config).save_pretrained(folder)
    return folder
