"""What a recipe says of Megatron splits."""

import pydantic

from pipeline_assets.corpus.sampling.row_groups import Share
from pipeline_assets.corpus.spine.recipe import RecipePart
from pipeline_assets.corpus.tokens.o200k_harmony import TokenizerRecipe


class MegatronRecipe(RecipePart):
    """How documents become token files.

    Attributes:
        token_budget: of both splits together; valid gets `valid_fraction` of it.
        valid_fraction: share of the documents, by hash, and of the budget.
    """

    tokenizer: TokenizerRecipe
    token_budget: int = pydantic.Field(gt=0)
    valid_fraction: Share
