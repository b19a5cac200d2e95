"""How much of a source may go as duplicates, before somebody has to look."""

from fractions import Fraction
from typing import Self

import pydantic

from pipeline_assets.corpus.sampling.per_source import PerSource
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.audit import Verdict


class RemovalCaps(PerSource):
    """Of the documents of a source, the fraction that may go; changes no byte."""

    @pydantic.model_validator(mode="after")
    def _are_fractions(self) -> Self:
        beyond = [cap for cap in (self.every_source, *self.sources.values()) if Fraction(cap) > 1]
        if beyond:
            raise ValueError(f"a fraction of {beyond[0]}: it is 1 at most, 0.3 for 30 %")
        return self


def removals_within_caps(deduplicated: Artifact, caps: RemovalCaps) -> Verdict:
    """Of no source more documents went than its cap allows."""
    passed, words = [], []
    for source, counts in deduplicated.manifest.identity.counts["by_source"].items():
        gone = counts["exact_duplicate"] + counts["near_duplicate"]
        passed.append(gone <= caps.cap(source) * counts["in"])
        sign = "at most " if passed[-1] else "MORE THAN "
        share = gone / max(counts["in"], 1)
        words.append(f"{source}: {gone:,} of {counts['in']:,} ({share:.1%}, {sign}{float(caps.cap(source)):.1%})")
    return Verdict(all(passed), "; ".join(words))
