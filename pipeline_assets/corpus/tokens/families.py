"""Families of tokenizers: which ones there are, and how one is loaded."""

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pydantic

from pipeline_assets.corpus.spine.errors import UsageError, bare, key
from pipeline_assets.corpus.tokens.hf_tokenizer import HfTokenizerRecipe, load_hf_tokenizer
from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY, Driver, TokenizerRecipe, load_encoder
from pipeline_assets.corpus.tokens.sentencepiece_model import SentencePieceRecipe, load_sentencepiece
from pipeline_assets.corpus.tokens.tokenizer import Tokenizer

AnyTokenizerRecipe = Annotated[
    TokenizerRecipe | HfTokenizerRecipe | SentencePieceRecipe, pydantic.Discriminator("family")
]


@dataclass(frozen=True)
class TokenizerFile:
    """A tokenizer and where its file lies: None for the one that ships with the program."""

    recipe: TokenizerRecipe | HfTokenizerRecipe | SentencePieceRecipe
    file: Path | None = None
    driver: Driver = "gigatoken"

    @property
    def path(self) -> Path:
        """
        Raises:
            UsageError: none is given, and none ships.
        """
        if self.file is None and not isinstance(self.recipe, TokenizerRecipe):
            fix = f"set {key('pack.tokenizer_path')} to it: only that of o200k_harmony ships with this program"
            raise UsageError(f"the tokenizer file of {self.recipe.family} is not given", bare("pack.tokenizer"), fix)
        return self.file or VOCABULARY


@functools.lru_cache(maxsize=1)
def load_tokenizer(tokenizer: TokenizerFile) -> Tokenizer:
    """The tokenizer, kept for the life of the process.

    Raises:
        InputError: the file can't be read, has another hash than the pinned one, or is none of its kind.
        UsageError: it is not given, it lacks the end of a document, or its library is not installed.
    """
    return _load(tokenizer)


def check_tokenizer(tokenizer: TokenizerFile) -> None:
    """Loads the tokenizer, and keeps nothing of it. Errors as `load_tokenizer`."""
    _load(tokenizer)


def _load(tokenizer: TokenizerFile) -> Tokenizer:
    match tokenizer.recipe:
        case TokenizerRecipe():
            return load_encoder(tokenizer.recipe.sha256, tokenizer.path, tokenizer.driver)
        case HfTokenizerRecipe():
            return load_hf_tokenizer(tokenizer.recipe, tokenizer.path)
        case SentencePieceRecipe():
            return load_sentencepiece(tokenizer.recipe, tokenizer.path)
