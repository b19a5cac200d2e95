"""Caps on the fraction of each source that deduplication drops."""

from collections.abc import Collection, Iterator, Mapping
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Self

import msgspec
import pydantic

from pipeline_assets.corpus.source_caps import SourceCaps
from pipeline_assets.spine.artifact import Verdict
from pipeline_assets.spine.command_option import Option
from pipeline_assets.spine.key_types import Decimal
from pipeline_assets.spine.manifest import Manifest
from pipeline_assets.spine.recipe_validation import RecipeProblem
from pipeline_assets.spine.recipe_yaml import section_at
from pipeline_assets.spine.typed_values import convert

_ADVICE = "look at some with `corpusmill dedup show`, then raise `max_removed`, or change the rules of `dedup`"


class _SourceCounts(msgspec.Struct, rename={"rows_in": "in"}):
    rows_in: int
    exact_duplicate: int
    near_duplicate: int


class RemovalCaps(SourceCaps):
    """Caps on the dropped fraction of each source; they do not affect the output."""

    check_name: ClassVar[str] = "removals_within_caps"
    every_source: Annotated[
        Decimal, Option("Exit 1 if a larger fraction of a source is dropped.", "max-removed", default=None)
    ]

    @pydantic.model_validator(mode="after")
    def _check_fractions(self) -> Self:
        too_large = [cap for cap in (self.every_source, *self.sources.values()) if Fraction(cap) > 1]
        if too_large:
            raise ValueError(f"a fraction must be at most 1 (0.3 for 30 %), got {too_large[0]}")
        return self

    def evaluate(self, deduplicated: Manifest) -> Verdict:
        """Check that no source lost more documents than its cap allows."""
        try:
            by_source = convert(deduplicated.identity.counts.get("by_source"), dict[str, _SourceCounts])
        except msgspec.ValidationError as error:
            return Verdict(False, f"the manifest has no document counts by source: {error}")
        passed, summaries = [], []
        for source, counts in by_source.items():
            dropped, cap = counts.exact_duplicate + counts.near_duplicate, self.cap(source)
            passed.append(dropped <= cap * counts.rows_in)
            sign = "at most " if passed[-1] else "MORE THAN "
            share = dropped / max(counts.rows_in, 1)
            summaries.append(f"{source}: {dropped:,} of {counts.rows_in:,} ({share:.1%}, {sign}{float(cap):.1%})")
        return Verdict(all(passed), "; ".join(summaries) + ("" if all(passed) else f": {_ADVICE}"))


def check_caps(recipe: Mapping[str, Any], sources: Collection[str]) -> Iterator[RecipeProblem]:
    """Yield errors for caps of unknown sources, and for `max_removed` without `dedup`.

    Caps of sources are set in `max_removed.sources` and in `pack.max_epochs.sources`; both are checked.
    """
    fix = "correct or remove it"
    if recipe.get("max_removed") is not None and recipe.get("dedup") is None:
        yield RecipeProblem(("max_removed",), "`max_removed` requires a section `dedup`", fix)
    for keys in (("max_removed", "sources"), ("pack", "max_epochs", "sources")):
        for name in section_at(recipe, *keys):
            if name not in sources:
                yield RecipeProblem((*keys, name), f"{name} has a cap but is not a source", fix)
