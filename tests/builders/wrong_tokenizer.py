"""gigatoken with the splitting rule of cl100k, which separates a contraction from its word."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import gigatoken
import pytest

from pipeline_assets.corpus.tokens import o200k_harmony
from pipeline_assets.corpus.tokens.families import load_tokenizer

TOKENIZER = gigatoken.Tokenizer


class WrongTokenizer:
    """What gigatoken is taken for."""

    @staticmethod
    def from_tiktoken(vocabulary: Path, pretokenizer: str, special_tokens: dict[str, int]) -> gigatoken.Tokenizer:
        return TOKENIZER.from_tiktoken(vocabulary, pretokenizer="cl100k", special_tokens=special_tokens)


@contextmanager
def wrong_gigatoken() -> Iterator[None]:
    """Tokenizers that are loaded meanwhile encode wrongly, and are not kept."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gigatoken, "Tokenizer", WrongTokenizer)
        with nothing_kept():
            yield


@contextmanager
def nothing_kept() -> Iterator[None]:
    """Tokenizers that were loaded before are loaded anew in the block, and again after it."""
    kept = (load_tokenizer, o200k_harmony._load_cached)
    for cache in kept:
        cache.cache_clear()
    yield
    for cache in kept:
        cache.cache_clear()
