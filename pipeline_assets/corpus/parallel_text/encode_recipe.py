"""Recipe of a token cache: its model and the length of its pairs."""

from typing import Annotated, Any, Self

import pydantic

from pipeline_assets.corpus.tokens.losses import MAX_UNKNOWN_FRACTION, MaxUnknownFraction
from pipeline_assets.corpus.tokens.tokenizer import Sha256
from pipeline_assets.corpus.tokens.unigram import UnigramRecipe
from pipeline_assets.spine.manifest import StageVersion
from pipeline_assets.spine.section import Option, Share

ENCODE_STAGE = StageVersion("parallel_tokens", 1)


class EncodeRecipe(UnigramRecipe):
    """How a sample becomes ids.

    Attributes:
        vocab_size: pieces of a trained model, at most. Where the text allows fewer, it is as many as it allows, rounded
            down to a multiple of 100.
        model_sha256: of a model that is given; None trains one.
        seq_len: tokens of a pair, at most; a longer one is cut, see `cut_lengths`. None cuts none.
    """

    vocab_size: Annotated[int, Option("Pieces of a trained model, at most.")] = pydantic.Field(default=8000, ge=8)
    character_coverage: Share = "1"
    byte_fallback: bool = True
    model_sha256: Sha256 | None = None
    seq_len: Annotated[int | None, Option("Cut pairs to so many tokens, and pad.", default=None)] = pydantic.Field(
        default=None, ge=4
    )


class EncodeSection(EncodeRecipe):
    """How a sample becomes ids, and where a model that is given lies.

    Attributes:
        model: absolute, or below the data root; changes no byte, since `model_sha256` says what it is.
        max_unknown_fraction: largest share of a side that the model may lose; changes no byte.
    """

    model: str | None = None
    max_unknown_fraction: MaxUnknownFraction = MAX_UNKNOWN_FRACTION

    @pydantic.model_validator(mode="after")
    def _is_pinned(self) -> Self:
        if (self.model is None) != (self.model_sha256 is None):
            raise ValueError("give both `model` and `model_sha256`, or neither: then one is trained")
        return self

    def cache_content(self) -> dict[str, Any]:
        """What bytes depend on: of a model that is given, nothing that would train one."""
        mine = {"model_sha256", "seq_len"} if self.model_sha256 else EncodeRecipe.model_fields.keys()
        return {key: value for key, value in self.content().items() if key in mine}
