"""Families of tokenizers: o200k Harmony, a `tokenizer.json`, a SentencePiece model."""

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pydantic

from pipeline_assets.corpus.tokens.hf_tokenizer import load_hf_tokenizer
from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY, Driver, TokenizerRecipe, load_encoder
from pipeline_assets.corpus.tokens.sentencepiece_model import load_sentencepiece
from pipeline_assets.corpus.tokens.tokenizer import FileTokenizerRecipe, Tokenizer
from pipeline_assets.spine.errors import UsageError, bare, key

AnyTokenizerRecipe = Annotated[TokenizerRecipe | FileTokenizerRecipe, pydantic.Discriminator("family")]


@dataclass(frozen=True)
class TokenizerFile:
    """A tokenizer and where its file lies: None for the one that ships with the program."""

    recipe: TokenizerRecipe | FileTokenizerRecipe
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
    recipe = tokenizer.recipe
    if isinstance(recipe, TokenizerRecipe):
        return load_encoder(recipe.sha256, tokenizer.path, tokenizer.driver)
    load = load_hf_tokenizer if recipe.family == "hf_tokenizer" else load_sentencepiece
    return load(recipe, tokenizer.path)
