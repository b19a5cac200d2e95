"""A decimal for each source: one for all, and others for single ones."""

from collections.abc import Mapping
from fractions import Fraction

import pydantic

from pipeline_assets.corpus.sampling.row_groups import Decimal
from pipeline_assets.corpus.spine.recipe import RecipePart


class PerSource(RecipePart):
    """A cap on each source.

    Attributes:
        every_source: of each that isn't named.
        sources: of single ones, by their names.
    """

    every_source: Decimal
    sources: Mapping[str, Decimal] = pydantic.Field(default_factory=dict)

    def cap(self, source: str) -> Fraction:
        """Of a source."""
        return Fraction(self.sources.get(source, self.every_source))
