"""Checks that several systems use."""

from pathlib import Path

from pipeline_assets.build.target import Target
from pipeline_assets.corpus.packing.empty_sources import DEDUPLICATED
from pipeline_assets.corpus.tokens.loss_limit import LossLimit
from pipeline_assets.spine.artifact import Artifact, Verdict, require_manifest


def unknown_tokens_within_limit(tokens: Artifact, target: Target, root: Path) -> Verdict:
    """Check that the tokenizer loses at most `max_unknown_fraction` of each source.

    The fraction is a share of the source's text.
    """
    limit = target.count_limit if isinstance(target.count_limit, LossLimit) else LossLimit()
    return limit.evaluate(tokens.manifest)


def draws_are_deduplicated(packed: Artifact, target: Target, root: Path) -> Verdict:
    """Check that packed documents come from a deduplicated corpus."""
    manifest = require_manifest(root / target.upstream[0].folder)
    if DEDUPLICATED in (manifest.kind, *(entry["name"] for entry in manifest.identity.upstream)):
        return Verdict(True, "the packed corpus is deduplicated")
    return Verdict(False, "the packed corpus is not deduplicated; a text may occur more often than its epochs")
