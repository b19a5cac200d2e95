"""Summary of a packed set: requested and reached shares, cuts and licences."""

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from pipeline_assets.corpus.tokens.losses import LOST_TEXT
from pipeline_assets.corpus.tokens.sealed_losses import read_losses
from pipeline_assets.spine.artifact import Artifact, Verdict


def summarize_packed(packed: Artifact) -> dict[str, Any]:
    """Return the counts of a packed set for its report.

    `cut_documents` is the number of draws that are not whole in one row; `cut_share` is their share of all draws. Both
    are also in `by_source`. `license_tokens` begins with the licence that has the most tokens.
    """
    identity = packed.manifest.identity
    counts, rules = identity.counts, identity.recipe["pack"]
    by_source = {source: summary | _count_cuts(summary) for source, summary in counts["by_source"].items()}
    license_tokens = sum((Counter(summary["license_tokens"]) for summary in by_source.values()), Counter[str]())
    cut_documents = sum(summary["cut_documents"] for summary in by_source.values())
    return {
        "strategy": rules["strategy"],
        "rows": counts["rows"],
        "seq_len": rules["seq_len"],
        **{name: counts[name] for name in ("documents", "tokens", "padding_tokens", "packing_efficiency")},
        "cut_documents": cut_documents,
        "cut_share": format_ratio(cut_documents, counts["documents"]),
        "by_source": by_source,
        "license_tokens": dict(sorted(license_tokens.items(), key=lambda item: (-item[1], item[0]))),
        "rejected": identity.ledger.rejected,
        LOST_TEXT: packed.manifest.provenance.get(LOST_TEXT, {}),
    }


def _count_cuts(counts: Mapping[str, Any]) -> dict[str, int | str]:
    cut = counts["cut"] + counts["longer_than_a_row"]
    return {"cut_documents": cut, "cut_share": format_ratio(cut, counts["drawn"])}


def format_ratio(part: int, total: int) -> str:
    """Return a quotient with six decimals; a `total` of 0 counts as 1."""
    return f"{part / max(total, 1):.6f}"


_TOLERANCE = Fraction(1, 10)  # relative to a weight


def shares_reached(packed: Artifact) -> Verdict:
    """Check that the share of each source is within ±10 % of its weight."""
    counts = packed.manifest.identity.counts
    deviations = []
    for source, source_counts in counts["by_source"].items():
        weight = Fraction(source_counts["asked_share"])
        reached = Fraction(source_counts["packed_tokens"], counts["tokens"])
        if abs(reached - weight) > _TOLERANCE * weight:
            requested, text_tokens = source_counts["asked_tokens"], source_counts["text_tokens"]
            mean = text_tokens // max(source_counts["documents"], 1)
            cause = "its next document is longer than the rest" if reached < weight else "its last document exceeds it"
            reason = f"its share is {requested:,} tokens, and {cause}; its documents have {mean:,} on average"
            deviations.append(f"{source}: requested {float(weight):.2%}, reached {float(reached):.2%} ({reason})")
    numbers = {source: source_counts["share"] for source, source_counts in counts["by_source"].items()}
    return Verdict(not deviations, "; ".join(deviations) or "each source is within a tenth of its weight", numbers)


def preview_packed(packed: Artifact) -> list[dict[str, str]]:
    """Return a preview line per source, with its requested and reached share."""
    lost = read_losses(packed.manifest) or {}
    return [
        {
            "source": source,
            "requested share": f"{float(counts['asked_share']):.2%}",
            "share": f"{float(counts['share']):.2%}",
            "tokens": f"{counts['packed_tokens']:,}",
            "epochs": f"{float(counts['epochs']):.2f}",
            "text lost": f"{float(lost[source].fraction if source in lost else 0):.3%}",
        }
        for source, counts in packed.manifest.identity.counts["by_source"].items()
    ]
