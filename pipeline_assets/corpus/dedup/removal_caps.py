"""How much of a source may go as duplicates, before somebody has to look."""

from fractions import Fraction
from typing import Annotated, Self

import msgspec
import pydantic

from pipeline_assets.corpus.sampling.per_source import PerSource
from pipeline_assets.corpus.sampling.row_groups import Decimal
from pipeline_assets.corpus.spine.audit import Verdict
from pipeline_assets.corpus.spine.manifest import Manifest
from pipeline_assets.corpus.spine.recipe import Option

_ADVICE = "look at some with `corpusmill dedup show`, then raise `max_removed` in the recipe, or change `dedup`"


class _Removals(msgspec.Struct, rename={"rows_in": "in"}):
    """What a manifest counts of a source."""

    rows_in: int
    exact_duplicate: int
    near_duplicate: int


_BySource = dict[str, _Removals]


class RemovalCaps(PerSource):
    """Of the documents of a source, the fraction that may go; changes no byte."""

    every_source: Annotated[
        Decimal,
        Option(
            "Fraction of a source that may go. If more does, the corpus is kept and the exit status is 1.",
            "max-removed",
            default=None,
        ),
    ]

    @pydantic.model_validator(mode="after")
    def _are_fractions(self) -> Self:
        beyond = [cap for cap in (self.every_source, *self.sources.values()) if Fraction(cap) > 1]
        if beyond:
            raise ValueError(f"a fraction of {beyond[0]}: it is 1 at most, 0.3 for 30 %")
        return self

    @property
    def check(self) -> str:
        """The name of the check."""
        return "removals_within_caps"

    def judge(self, deduplicated: Manifest) -> Verdict:
        """Of no source more documents went than its cap allows."""
        try:
            by_source = msgspec.convert(deduplicated.identity.counts.get("by_source"), _BySource)
        except msgspec.ValidationError as error:
            return Verdict(False, f"the manifest counts no documents by source: {error}")
        passed, words = [], []
        for source, counts in by_source.items():
            gone, cap = counts.exact_duplicate + counts.near_duplicate, self.cap(source)
            passed.append(gone <= cap * counts.rows_in)
            sign = "at most " if passed[-1] else "MORE THAN "
            share = gone / max(counts.rows_in, 1)
            words.append(f"{source}: {gone:,} of {counts.rows_in:,} ({share:.1%}, {sign}{float(cap):.1%})")
        return Verdict(all(passed), "; ".join(words) + ("" if all(passed) else f": {_ADVICE}"))
