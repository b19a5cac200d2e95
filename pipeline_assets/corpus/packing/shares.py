"""Whether the sources of a packed set have the shares of its tokens that were asked for."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.audit import Verdict

_TOLERANCE = Fraction(1, 10)  # of a weight


def shares_reached(packed: Artifact) -> Verdict:
    """The share of each source is within a tenth of its weight."""
    counts = packed.manifest.identity.counts
    off = []
    for source, one in counts["by_source"].items():
        asked, reached = Fraction(one["asked_share"]), Fraction(one["packed_tokens"], counts["tokens"])
        if abs(reached - asked) > _TOLERANCE * asked:
            why = _why(one, is_short=reached < asked)
            off.append(f"{source}: asked {float(asked):.2%}, reached {float(reached):.2%} ({why})")
    numbers = {source: one["share"] for source, one in counts["by_source"].items()}
    return Verdict(not off, "; ".join(off) or "each source is within a tenth of its weight", numbers)


def _why(counts: Mapping[str, Any], is_short: bool) -> str:
    """It is never the supply, nor a cap: where these don't give what is asked, nothing is packed. But documents are
    drawn whole, and one may be more than a source's share.
    """
    asked, mean = counts["asked_tokens"], counts["text_tokens"] // max(counts["documents"], 1)
    place = "its next document is longer than what is left" if is_short else "its last document goes beyond that"
    return f"its share is {asked:,} tokens, and {place}; they have {mean:,} on average"
