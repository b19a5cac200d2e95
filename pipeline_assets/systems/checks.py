"""Checks that several systems have, of an artifact and what its recipe asks for."""

from pathlib import Path

from pipeline_assets.build.target import Target
from pipeline_assets.corpus.packing.empty_sources import DEDUPLICATED
from pipeline_assets.corpus.tokens.losses import LossLimit
from pipeline_assets.spine.artifact import Artifact, Verdict, require_manifest


def unknown_tokens_within_limit(tokens: Artifact, target: Target, root: Path) -> Verdict:
    """Check that the tokenizer loses at most `max_unknown_fraction` of each source.

    The fraction is a share of the source's text, and a value of the recipe.
    """
    limit = target.count_limit if isinstance(target.count_limit, LossLimit) else LossLimit()
    return limit.evaluate(tokens.manifest)


def draws_are_deduplicated(packed: Artifact, target: Target, root: Path) -> Verdict:
    """What is packed was deduplicated at some step: else a text may be in it more often than its epochs say."""
    manifest = require_manifest(root / target.upstream[0].folder)
    if DEDUPLICATED in (manifest.kind, *(entry["name"] for entry in manifest.identity.upstream)):
        return Verdict(True, "what it is drawn from was deduplicated")
    return Verdict(False, "not deduplicated: a text may be in it more often than its epochs say")
