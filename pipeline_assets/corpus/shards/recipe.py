"""How a corpus becomes token shards, and how shards are cut into segments of a continual training."""

from typing import Annotated, Literal

import pydantic

from pipeline_assets.corpus.packing.recipe import SeqLen
from pipeline_assets.corpus.sampling.weights import Weights
from pipeline_assets.corpus.spine.errors import UsageError, bare
from pipeline_assets.corpus.spine.manifest import StageVersion
from pipeline_assets.corpus.spine.recipe import Name, RecipePart, refuse_repeated

SHARDS_STAGE = StageVersion("token_shards", 1)
INVENTORY_STAGE = StageVersion("token_inventory", 1)
SEGMENTS_STAGE = StageVersion("token_segments", 1)
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


class SegmentSection(RecipePart):
    """A segment: `tokens`, rounded down to whole rows, of which each corpus gives its weight."""

    name: Name
    tokens: int = pydantic.Field(ge=1)
    weights: Weights


class SegmentsRecipe(RecipePart):
    """Segments, in the order in which they are trained on."""

    segments: Annotated[tuple[SegmentSection, ...], pydantic.Field(strict=False, min_length=1)]

    @pydantic.field_validator("segments")
    @classmethod
    def _have_names_of_their_own(cls, segments: tuple[SegmentSection, ...]) -> tuple[SegmentSection, ...]:
        refuse_repeated([one.name for one in segments], "there are two segments", "give each its own name")
        return segments

    def corpora(self) -> list[str]:
        """Names of the corpora that segments take rows of, each once, as they come."""
        return list(dict.fromkeys(name for segment in self.segments for name in segment.weights))
