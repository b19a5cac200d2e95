"""What a recipe says of Megatron splits."""

from fractions import Fraction

import pydantic

from pipeline_assets.corpus.sampling.row_groups import Decimal
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
    valid_fraction: Decimal

    @pydantic.field_validator("valid_fraction")
    @classmethod
    def _is_a_share(cls, fraction: str) -> str:
        if Fraction(fraction) > 1:
            raise ValueError("a fraction is at most 1")
        return fraction
