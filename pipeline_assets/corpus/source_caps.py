"""Recipe section with an upper limit for each source."""

from collections.abc import Mapping
from fractions import Fraction

import pydantic

from pipeline_assets.spine.key_types import Decimal
from pipeline_assets.spine.section import RecipeSection


class SourceCaps(RecipeSection):
    """Upper limits: `sources` by source name, `every_source` for all other sources."""

    every_source: Decimal
    sources: Mapping[str, Decimal] = pydantic.Field(default_factory=dict)

    def cap(self, source: str) -> Fraction:
        return Fraction(self.sources.get(source, self.every_source))
