"""What sample is asked for."""

from typing import Annotated, Literal, Self

import pydantic

from pipeline_assets.corpus.parallel_text.pairs import Languages, PairFilters
from pipeline_assets.corpus.parallel_text.reservoir import Algorithm
from pipeline_assets.corpus.parallel_text.splits import SplitShares
from pipeline_assets.corpus.spine.manifest import StageVersion, sha256_of
from pipeline_assets.corpus.spine.recipe import Option, RecipePart, RejectShare

SAMPLE_STAGE = StageVersion("parallel_sample", 2)


class SampleRecipe(RecipePart):
    """How pairs are drawn. All of it changes bytes.

    Attributes:
        filters: None draws of all rows that have both languages.
        duplicates: what becomes of pairs whose canonical texts are equal. `within` keeps one of them in the reservoir,
            so that what comes often has more chances; `stream` looks at the first alone, by a set of
            `stream_set_bytes`; `keep` looks at all.
        weight: of a row, for `es_weighted`: `chars`, those of both sides, or `column:NAME`.
        splits: how the sample is split, see `splits`.
        max_reject_fraction: more bad rows than this stop the build.
    """

    languages: Languages = Languages()
    k: Annotated[int, Option("Pairs to draw.")] = pydantic.Field(default=120, ge=1)
    seed: Annotated[int, Option("Of the draw and of the split.")] = pydantic.Field(default=42, ge=0)
    algorithm: Algorithm = "l"
    weight: str | None = pydantic.Field(default=None, pattern="^(chars|column:.+)$")
    filters: PairFilters | None = PairFilters()
    duplicates: Literal["within", "stream", "keep"] = "within"
    splits: SplitShares = SplitShares()
    max_reject_fraction: RejectShare = "0.001"

    @pydantic.model_validator(mode="after")
    def _has_its_weight(self) -> Self:
        if (self.weight is not None) != (self.algorithm == "es_weighted"):
            raise ValueError("`weight` is given for `es_weighted`, and for no other algorithm")
        return self

    @property
    def weight_column(self) -> str | None:
        """None where weights aren't a column."""
        return self.weight.partition(":")[2] or None if self.weight else None

    @property
    def filters_sha256(self) -> str:
        """Of what decides which rows are drawn from."""
        return sha256_of({name: self.content()[name] for name in ("languages", "filters", "duplicates")})
