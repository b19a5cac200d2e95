"""What a report tells of a packed set: the mixture that was asked for and the one that came of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipeline_assets.corpus.spine.artifact import Artifact


@dataclass(frozen=True)
class PackedSummary:
    """A packed set in numbers.

    Attributes:
        tokens, padding_tokens: together `rows` × `seq_len`.
        packing_efficiency: the share of tokens that are no padding, as a decimal.
        cut_documents: drawn documents of which no row holds all, as `cut_share` of those drawn, a decimal: they fit in
            a row and were cut, or they are longer than one.
        by_source: of each source what its manifest counts: `asked_share`, `share`, `epochs`, `drawn`, `cut`, …, and its
            own `cut_documents` and `cut_share`.
        license_tokens: tokens of the set by licence, the most first.
        rejected: texts that can't be encoded, by reason.
    """

    strategy: str
    rows: int
    seq_len: int
    documents: int
    tokens: int
    padding_tokens: int
    packing_efficiency: str
    cut_documents: int
    cut_share: str
    by_source: Mapping[str, Mapping[str, Any]]
    license_tokens: Mapping[str, int]
    rejected: Mapping[str, int]


def summary_of(packed: Artifact) -> PackedSummary:
    """Of a sealed set."""
    identity = packed.manifest.identity
    counts, rules = identity.counts, identity.recipe["pack"]
    by_source = {source: {**one, **_cut_of(one)} for source, one in counts["by_source"].items()}
    cut_documents = sum(one["cut_documents"] for one in by_source.values())
    license_tokens: dict[str, int] = {}
    for source in counts["by_source"].values():
        for license_tag, tokens in source["license_tokens"].items():
            license_tokens[license_tag] = license_tokens.get(license_tag, 0) + tokens
    return PackedSummary(
        strategy=rules["strategy"],
        rows=counts["rows"],
        seq_len=rules["seq_len"],
        documents=counts["documents"],
        tokens=counts["tokens"],
        padding_tokens=counts["padding_tokens"],
        packing_efficiency=counts["packing_efficiency"],
        cut_documents=cut_documents,
        cut_share=_share(cut_documents, counts["documents"]),
        by_source=by_source,
        license_tokens=dict(sorted(license_tokens.items(), key=lambda item: (-item[1], item[0]))),
        rejected=counts["ledger"]["rejected"],
    )


def _cut_of(counts: Mapping[str, Any]) -> dict[str, int | str]:
    cut_documents = counts["cut"] + counts["longer_than_a_row"]
    return {"cut_documents": cut_documents, "cut_share": _share(cut_documents, counts["drawn"])}


def _share(part: int, of: int) -> str:
    return f"{part / max(of, 1):.6f}"
