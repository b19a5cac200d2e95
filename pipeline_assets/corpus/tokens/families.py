"""Loading of tokenizers: o200k Harmony, `tokenizer.json` and SentencePiece models."""

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pydantic

from pipeline_assets.corpus.tokens.hf_tokenizer import load_hf_tokenizer
from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_PATH, Driver, HarmonyRecipe, load_encoder
from pipeline_assets.corpus.tokens.pinned_file import FileTokenizerRecipe
from pipeline_assets.corpus.tokens.sentencepiece_model import load_sentencepiece
from pipeline_assets.corpus.tokens.tokenizer import Tokenizer
from pipeline_assets.spine.errors import RecipeKey, UsageError

AnyTokenizerRecipe = Annotated[HarmonyRecipe | FileTokenizerRecipe, pydantic.Discriminator("family")]


@dataclass(frozen=True)
class TokenizerFile:
    """Tokenizer recipe with its file.

    Attributes:
        explicit_path: Path of the tokenizer file; None for the o200k file that the program ships.
        driver: Library that encodes with the o200k file.
        section: Recipe section of the tokenizer, for error messages.
    """

    recipe: HarmonyRecipe | FileTokenizerRecipe
    explicit_path: Path | None = None
    driver: Driver = "gigatoken"
    section: str = "pack.tokenizer"

    @property
    def path(self) -> Path:
        """Path of the file; UsageError without `explicit_path`, except for o200k Harmony."""
        if self.explicit_path is None and not isinstance(self.recipe, HarmonyRecipe):
            fix = "set `pack.tokenizer_path`; only the file of o200k_harmony ships with this program"
            raise UsageError(f"the tokenizer file of {self.recipe.family} is not set", RecipeKey("pack.tokenizer"), fix)
        return self.explicit_path or VOCABULARY_PATH


@functools.lru_cache(maxsize=1)
def load_tokenizer(tokenizer_file: TokenizerFile) -> Tokenizer:
    """Load a tokenizer; each process caches the tokenizer that it loaded last."""
    recipe = tokenizer_file.recipe
    if isinstance(recipe, HarmonyRecipe):
        return load_encoder(recipe.sha256, tokenizer_file.path, tokenizer_file.driver)
    load = load_hf_tokenizer if recipe.family == "hf_tokenizer" else load_sentencepiece
    return load(recipe, tokenizer_file.path, tokenizer_file.section)
