"""Errors for weighted sources without documents."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.errors import InputError, RecipeKey, UsageError
from pipeline_assets.spine.ledger import Ledger
from pipeline_assets.spine.lineage import Lineage
from pipeline_assets.spine.staging import Receipt

DEDUPLICATED_KIND = "stage_a/deduplicated"


def find_deduplicated_corpus(corpus: Artifact, root: Path) -> Artifact | None:
    """Return the deduplicated corpus from which `corpus` was built; None if missing."""
    digests = [entry["digest"] for entry in corpus.manifest.identity.upstream if entry["name"] == DEDUPLICATED_KIND]
    try:
        return Lineage(root).open_by_digest(digests[0]) if digests else None
    except InputError:
        return None


_REMOVE_FIX = "remove it from `weights` in a manifest, or from `sources` and `pack.weights` in a recipe"
_DUPLICATES = "were duplicates"
_KEEP_FIX = "or list it before the sources that repeat its texts, or deduplicate with scope per-source"


def raise_if_source_empty(
    corpora: Mapping[str, Artifact], deduplicated: Artifact | None, weighted_sources: Collection[str]
) -> None:
    """Raise UsageError if a source with a weight has no documents.

    The message counts the source's dropped documents: those dropped when its corpus was built and, if `deduplicated`
    is given, those dropped by deduplication.
    """
    for name, corpus in corpora.items():
        counts = corpus.manifest.identity.counts
        kept = {source: source_counts["out"] for source, source_counts in sorted(counts.get("by_source", {}).items())}
        for source, documents in (kept or {name: counts["documents"]}).items():
            if documents or source not in weighted_sources:
                continue
            steps = [corpus] if deduplicated is None else [deduplicated, corpus]
            fates = [fate for step in steps for fate in _describe_drops(step, source)]
            what = f"no documents of {source} remain{': ' * bool(fates)}{', '.join(fates)}"
            is_repeated = any(fate.endswith(_DUPLICATES) for fate in fates)
            fix = f"{_REMOVE_FIX}; {_KEEP_FIX}" if is_repeated else _REMOVE_FIX
            raise UsageError(what, RecipeKey("pack.weights"), fix)


def raise_if_unencodable(sources: Sequence[str], receipts: Sequence[Receipt]) -> None:
    """Raise UsageError if any source has no encoded document.

    `receipts` has the receipt of each encoded shard, and `sources` has the source of the shard at the same index.
    """
    counts_by_source: dict[str, Counter[str]] = {}
    for source, receipt in zip(sources, receipts, strict=True):
        counts_by_source.setdefault(source, Counter()).update(receipt.counts)
    for source, counts in counts_by_source.items():
        if not counts["documents"]:
            rejected = sorted(Ledger.from_counts(counts).rejected.items())
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in rejected)
            fix = "remove the source and its weight, or choose another tokenizer"
            raise UsageError(f"no document of {source} can be encoded: {reasons}", RecipeKey("pack.weights"), fix)


def _describe_drops(corpus: Artifact, source: str) -> Iterator[str]:
    """Yield a phrase for each reason why `corpus` dropped documents of `source`."""
    counts = corpus.manifest.identity.counts.get("by_source", {}).get(source, {})
    seen_duplicates = counts.get("of_seen", 0)
    dropped = {
        "were duplicates of `seen`": seen_duplicates,
        _DUPLICATES: counts.get("exact_duplicate", 0) + counts.get("near_duplicate", 0) - seen_duplicates,
        "were contaminated": counts.get("dropped", 0),
    }
    for reason, documents in dropped.items():
        if documents:
            yield f"{documents:,} of {counts['in']:,} documents {reason}"
