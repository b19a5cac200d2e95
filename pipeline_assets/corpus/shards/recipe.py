"""How a corpus becomes token shards."""

from typing import Literal

import pydantic

from pipeline_assets.corpus.packing.recipe import SeqLen
from pipeline_assets.corpus.spine.errors import UsageError, bare
from pipeline_assets.corpus.spine.manifest import StageVersion
from pipeline_assets.corpus.spine.recipe import RecipePart

SHARDS_STAGE = StageVersion("token_shards", 1)
Dtype = Literal["uint16", "int32"]
_UINT16_IDS = 1 << 16


class ShardsRecipe(RecipePart):
    """Token shards.

    Attributes:
        seq_len: tokens in a row.
        rows_per_shard: of each file but the last.
        dtype: of ids; None takes uint16 where it holds every id of the vocabulary, else int32.
    """

    seq_len: SeqLen = 2048
    rows_per_shard: int = pydantic.Field(16_384, ge=1)
    dtype: Dtype | None = None

    def dtype_for(self, vocabulary_size: int) -> Dtype:
        """Raises UsageError where uint16 is asked for, and doesn't hold every id."""
        fits = vocabulary_size <= _UINT16_IDS
        if self.dtype == "uint16" and not fits:
            what = f"uint16 holds ids below {_UINT16_IDS:,}, and the vocabulary has {vocabulary_size:,}"
            raise UsageError(what, bare("shards.dtype"), "leave it out, or ask for int32")
        return self.dtype or ("uint16" if fits else "int32")
