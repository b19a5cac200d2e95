"""Sources of which nothing is left to pack, and what became of their documents."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.building import Receipt
from pipeline_assets.corpus.spine.errors import UsageError, bare

_LEAVE_OUT = "leave it out: in a manifest of `weights`, in a recipe of `sources` and `pack.weights`"
_DUPLICATES = "went as duplicates"
_REJECTED = "rejected/"
_KEEP = "or let it keep its texts: list it before those that repeat them, or deduplicate with scope per-source"


def refuse_emptied(corpora: Mapping[str, Artifact], deduplicated: Artifact | None, weighed: Collection[str]) -> None:
    """Before a text is encoded.

    Args:
        corpora: by their names, each of one source or of several.
        deduplicated: what they were made from, if that is a deduplicated corpus.
        weighed: names of the sources that are asked for.
    Raises:
        UsageError: a source is asked for that has no document left.
    """
    for name, corpus in corpora.items():
        counts = corpus.manifest.identity.counts
        left = {source: one["out"] for source, one in counts.get("by_source", {}).items()} or {
            name: counts["documents"]
        }
        for source in sorted(source for source in weighed if left.get(source) == 0):
            steps = [corpus] if deduplicated is None else [deduplicated, corpus]
            fates = [fate for step in steps for fate in _fates(step, source)]
            what = f"nothing is left of {source}{': ' * bool(fates)}{', '.join(fates)}"
            is_repeated = any(fate.endswith(_DUPLICATES) for fate in fates)
            raise UsageError(what, bare("pack.weights"), f"{_LEAVE_OUT}; {_KEEP}" if is_repeated else _LEAVE_OUT)


def refuse_unencodable(sources: Sequence[str], encodings: Sequence[Receipt]) -> None:
    """After all texts were encoded.

    Args:
        sources: of each shard.
    Raises:
        UsageError: of a source no document can be encoded.
    """
    encoded: dict[str, Counter[str]] = {}
    for source, receipt in zip(sources, encodings, strict=True):
        encoded.setdefault(source, Counter()).update(receipt.counts)
    for source, counts in encoded.items():
        if not counts["documents"]:
            reasons = {key.removeprefix(_REJECTED): count for key, count in counts.items() if key.startswith(_REJECTED)}
            words = ", ".join(f"{count:,} {reason}" for reason, count in sorted(reasons.items()))
            fix = "give neither the source nor a weight of it, or another tokenizer"
            raise UsageError(f"no document of {source} can be encoded: {words}", bare("pack.weights"), fix)


def _fates(corpus: Artifact, source: str) -> Iterator[str]:
    """How many documents of a source came to a step, and how many went there."""
    counts = corpus.manifest.identity.counts.get("by_source", {}).get(source, {})
    gone = {
        _DUPLICATES: counts.get("exact_duplicate", 0) + counts.get("near_duplicate", 0),
        "were contaminated": counts.get("dropped", 0),
    }
    for how, documents in gone.items():
        if documents:
            yield f"of {counts['in']:,} documents {documents:,} {how}"
