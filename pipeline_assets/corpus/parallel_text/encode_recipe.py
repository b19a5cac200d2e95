"""Recipe of a token cache."""

from typing import Annotated, Any, Self

import pydantic

from pipeline_assets.corpus.tokens.loss_limit import MAX_UNKNOWN_FRACTION, MaxUnknownFraction
from pipeline_assets.corpus.tokens.unigram import Coverage, UnigramRecipe
from pipeline_assets.spine.command_option import Option
from pipeline_assets.spine.key_types import Sha256
from pipeline_assets.spine.manifest import StageVersion

ENCODE_STAGE = StageVersion("parallel_tokens", 1)
MIN_SEQ_LEN = 4
TRAINING_KEYS = tuple(UnigramRecipe.model_fields)  # without effect on an external model


class EncodeRecipe(UnigramRecipe):
    """Settings of a token cache: how the texts of a sample become token ids.

    Attributes:
        vocab_size: Maximum number of pieces of a trained model. If the training texts allow only fewer pieces, the
            model gets fewer, in most cases a multiple of 100.
        character_coverage: Share of characters that a trained model covers by pieces.
        byte_fallback: Whether a trained model encodes uncovered characters as bytes.
        model_sha256: sha256 of an external model; None trains a model.
        seq_len: Maximum tokens of a pair; longer pairs are cut, see `cut_lengths`. None does not cut pairs.
        model: Path of the external model, absolute or relative to the data root; `model_sha256` identifies the model,
            so that the path changes no byte.
        max_unknown_fraction: Largest share of a side's characters that may be lost in encoding; changes no byte.
    """

    vocab_size: Annotated[int, Option("Maximum pieces of a trained model.")] = pydantic.Field(default=8000, ge=8)
    character_coverage: Coverage = "1"
    byte_fallback: bool = True
    model_sha256: Sha256 | None = None
    seq_len: Annotated[int | None, Option("Tokens per pair, to which pairs are cut or padded.", default=None)] = (
        pydantic.Field(default=None, ge=MIN_SEQ_LEN)
    )
    model: str | None = None
    max_unknown_fraction: MaxUnknownFraction = MAX_UNKNOWN_FRACTION

    @pydantic.model_validator(mode="after")
    def _check_pin(self) -> Self:
        if (self.model is None) != (self.model_sha256 is None):
            raise ValueError("only one of `model` and `model_sha256` is set; set both, or neither to train a model")
        return self

    def cache_content(self) -> dict[str, Any]:
        """Return the keys that change bytes; for an external model, omit training keys."""
        unused = {"model", "max_unknown_fraction", *(TRAINING_KEYS if self.model_sha256 else ())}
        return {key: value for key, value in self.content().items() if key not in unused}
