"""Counts of document shards as a manifest has them, and what must hold of them."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from pipeline_assets.corpus.spine.errors import InputError

_MAX_NUL_FRACTION = Fraction(1, 100)


def check_documents(counts: Mapping[str, int], where: object, fix: str) -> None:
    """
    Args:
        fix: what to do where nothing is left.
    Raises:
        InputError: too many NUL characters, or nothing left.
    """
    documents, with_nul = counts.get("documents", 0), counts.get("nul_documents", 0)
    if with_nul > _MAX_NUL_FRACTION * documents:
        what = f"{with_nul:,} of {documents:,} documents hold NUL characters, more than 1 %"
        raise InputError(what, where, "this is not text as it was published: pin another commit or source")
    if not documents and not counts.get("rows"):
        raise InputError("there is no row in its files", where, "give files that have some, or leave the source out")
    if not documents:
        raise InputError("no row passed the rules", where, fix)


def document_counts(counts: Mapping[str, int]) -> dict[str, Any]:
    """Counts with the ledger apart."""
    return {
        "ledger": ledger(counts),
        "documents": counts["documents"],
        "text_bytes": counts["bytes"],
        "nul_documents": counts.get("nul_documents", 0),
        "nul_characters_removed": counts.get("nul_characters_removed", 0),
    }


def ledger(counts: Mapping[str, int]) -> dict[str, Any]:
    """Rows in = documents out + dropped + rejected, each by reason. Where rows become a part of another row's document,
    as answers do, they are `merged`, and count on the right too.
    """
    merged = {"merged": counts["merged"]} if counts.get("merged") else {}
    return {
        "in": counts["rows"],
        "out": counts["documents"],
        **merged,
        "dropped": _by_reason(counts, "dropped/"),
        "rejected": _by_reason(counts, "rejected/"),
    }


def _by_reason(counts: Mapping[str, int], prefix: str) -> dict[str, int]:
    return {name.removeprefix(prefix): count for name, count in counts.items() if name.startswith(prefix)}
