"""Whether the sources of a packed set have the shares of its tokens that were asked for."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from pipeline_assets.corpus.packing.recipe import PackRecipe
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.audit import Verdict

_TOLERANCE = Fraction(1, 10)  # of a weight


def shares_reached(packed: Artifact) -> Verdict:
    """The share of each source is within a tenth of its weight; else it says why, as far as the counts tell."""
    identity = packed.manifest.identity
    recipe = PackRecipe.from_content({**identity.recipe["pack"], "tokenizer": identity.tokenizer})
    tokens, off = identity.counts["tokens"], []
    numbers: dict[str, int | float | str] = {}
    for source, counts in identity.counts["by_source"].items():
        asked, reached = Fraction(recipe.weights[source]), Fraction(counts["packed_tokens"], tokens)
        numbers[source] = counts["share"]
        if abs(reached - asked) > _TOLERANCE * asked:
            why = _why(counts, reached < asked, recipe.max_epochs.cap(source))
            off.append(f"{source}: asked {float(asked):.2%}, reached {float(reached):.2%} ({why})")
    return Verdict(not off, "; ".join(off) or "each source is within a tenth of its weight", numbers)


def _why(counts: Mapping[str, Any], is_short: bool, cap: Fraction) -> str:
    """What kept a source from its weight."""
    documents, tokens, packed = counts["documents"], counts["text_tokens"], counts["packed_tokens"]
    if is_short and packed >= cap * tokens:
        return f"its cap of {float(cap):g} epochs: it has {tokens:,} tokens"
    if is_short and cap * tokens < counts["asked_tokens"]:
        return f"its supply: {tokens:,} tokens, {float(cap):g} epochs at most"
    lies = "the next one is longer than what it lacks" if is_short else "the last one goes beyond its weight"
    return f"documents are drawn whole, on average {tokens // max(documents, 1):,} tokens, and {lies}"
