"""Sizes of corpora in a report: documents, bytes and tokens.

`tokens` is an exact count; `estimated_tokens` is estimated from a sample (see `token_sample`).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pipeline_assets.corpus.profile import Profile, ProfileCounts, sum_profile, sum_profile_by
from pipeline_assets.corpus.token_sample import scale
from pipeline_assets.corpus.tokens.o200k_harmony import HarmonyRecipe
from pipeline_assets.spine.artifact import Artifact

_SAMPLED_TEXT = (
    "The tokens of the sources below are estimated from sampled documents, in proportion to bytes of text. Documents "
    "are drawn by the hash of doc_id, long ones with a higher probability, which their weights correct. In about 95 of "
    "100 such samples, the exact number differs by at most the error; for a part of a source, the error can be larger. "
)
_SCALED_TEXT = (
    "Token counts after decontamination are scaled from those of the sources, in proportion to bytes of text. "
)


def profile_size(counts: ProfileCounts, with_lengths: bool = False) -> dict[str, Any]:
    """Return `counts` as an entry of a report, optionally with length bins.

    Keys of estimates begin with `estimated_`. If no tokens were counted, tokens and lengths are omitted.
    """
    size = {name: getattr(counts, name) for name in ("documents", "characters", "utf8_bytes")}
    measured = () if counts.tokens is None else ("tokens", "lengths") if with_lengths else ("tokens",)
    return size | {f"{'' if counts.is_exact else 'estimated_'}{name}": getattr(counts, name) for name in measured}


def packed_token_counts(
    packed: Artifact | None, corpora: Sequence[Artifact], tokenizer: HarmonyRecipe | None
) -> dict[str, int]:
    """Count each source's tokens in a packed set, without end-of-document tokens.

    Return {} without `packed` or `tokenizer`, or if `packed` has other corpora, another tokenizer or any rejects.
    """
    if packed is None or tokenizer is None:
        return {}
    identity = packed.manifest.identity
    is_same_corpus = {entry["digest"] for entry in identity.upstream} == {corpus.manifest.digest for corpus in corpora}
    if not is_same_corpus or identity.tokenizer != tokenizer.content() or identity.ledger.rejected:
        return {}
    # `text_tokens` includes one end-of-document token per document.
    return {name: counts["text_tokens"] - counts["documents"] for name, counts in identity.counts["by_source"].items()}


def kept_sizes(decontaminated: Artifact, profile: Profile, packed_tokens: Mapping[str, int]) -> dict[str, Any]:
    """Return the sizes of sources in a decontaminated corpus, and their sum.

    `packed_tokens` has exact numbers of tokens by source. For other sources, the tokens in `profile`, which is from
    before decontamination, are scaled by bytes.
    """
    before, sizes, totals = sum_profile_by(profile, "source"), dict[str, dict[str, int]](), Counter[str]()
    for name, kept in decontaminated.manifest.identity.counts["by_source"].items():
        source = before.get(name, sum_profile(profile))
        sizes[name] = {"documents": kept["out"], "utf8_bytes": kept["text_bytes"]}
        if name in packed_tokens:
            sizes[name]["tokens"] = packed_tokens[name]
        elif source.tokens is not None:
            sizes[name]["estimated_tokens"] = scale(source.tokens, source.utf8_bytes, kept["text_bytes"])
        totals.update(sizes[name])
    if "estimated_tokens" in totals:  # a sum that includes an estimate is an estimate
        totals["estimated_tokens"] += totals.pop("tokens", 0)
    return {"totals": dict(totals), "sources": sizes}


def describe_estimates(profile: Profile, has_scaled_tokens: bool) -> dict[str, Any]:
    """Describe the estimates in a report; return {} if all tokens are exact.

    `has_scaled_tokens` is true if tokens after decontamination are estimates.
    """
    sources = {
        name: {
            "documents": counts.documents,
            "sampled_documents": counts.sample.documents,
            "sampled_bytes": counts.sample.utf8_bytes,
            "sampled_share": f"{counts.sample.utf8_bytes / max(counts.utf8_bytes, 1):.6f}",
            "error_fraction": f"{counts.sample.relative_error():.6f}",
        }
        for name, counts in sum_profile_by(profile, "source").items()
        if counts.tokens is not None and not counts.is_exact
    }
    if not sources and not has_scaled_tokens:
        return {}
    reasons = _SAMPLED_TEXT * bool(sources) + _SCALED_TEXT * has_scaled_tokens
    statement = f"A number with ≈ is an estimate. {reasons}Numbers without ≈ are exact."
    return {"estimates": {"statement": statement, "sources": sources}}
