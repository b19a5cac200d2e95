"""Tokenizer of gigatoken with the splitting rule of cl100k."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import gigatoken
import pytest

from pipeline_assets.corpus.tokens import o200k_harmony
from pipeline_assets.corpus.tokens.families import load_tokenizer

TOKENIZER = gigatoken.Tokenizer


class WrongTokenizer:
    """Replacement of gigatoken's tokenizer class."""

    @staticmethod
    def from_tiktoken(vocabulary: Path, pretokenizer: str, special_tokens: dict[str, int]) -> gigatoken.Tokenizer:
        return TOKENIZER.from_tiktoken(vocabulary, pretokenizer="cl100k", special_tokens=special_tokens)


@contextmanager
def wrong_gigatoken() -> Iterator[None]:
    """Load wrong tokenizers in the block, without caching them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gigatoken, "Tokenizer", WrongTokenizer)
        with without_cached_tokenizers():
            yield


@contextmanager
def without_cached_tokenizers() -> Iterator[None]:
    """Empty the tokenizer caches before and after the block."""
    kept = (load_tokenizer, o200k_harmony._load_cached)
    for cache in kept:
        cache.cache_clear()
    yield
    for cache in kept:
        cache.cache_clear()
