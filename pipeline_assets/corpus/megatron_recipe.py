"""What a recipe says of Megatron splits."""

from typing import Any

import pydantic

from pipeline_assets.corpus.sampling.split import describe_split
from pipeline_assets.corpus.spine.recipe import RecipePart, Share
from pipeline_assets.corpus.tokens.o200k_harmony import TokenizerRecipe


class MegatronRecipe(RecipePart):
    """How documents become token files.

    Attributes:
        token_budget: of both splits together; valid gets `valid_fraction` of it.
        valid_fraction: share of the documents, by hash, and of the budget.
    """

    tokenizer: TokenizerRecipe = TokenizerRecipe()
    token_budget: int = pydantic.Field(gt=0)
    valid_fraction: Share

    def described(self) -> dict[str, Any]:
        """What becomes of documents, for who reads a manifest of theirs: how they are split, and by which file they are
        encoded.
        """
        return {"split": describe_split(self.valid_fraction), "tokenizer": self.tokenizer.described()}
