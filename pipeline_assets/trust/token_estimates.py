"""Estimates of the tokens in a recipe's sources, for packed sets and segments."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from pipeline_assets.build.target import Target
from pipeline_assets.corpus.packing.mixture_estimate import MixtureEstimate, estimate_mixture
from pipeline_assets.spine.artifact import read_manifest
from pipeline_assets.spine.manifest import Manifest

TOKEN_BYTES = 4  # upper bound: vocabularies of up to 65,536 tokens need 2
STORED_BYTES_PER_TEXT_BYTE = 0.4  # web text at zstd level 3
TOKEN_BYTES_PER_STORED_BYTE = 2.1  # of text at zstd level 3


def plan_mixture(
    packed: Target, bytes_by_folder: Mapping[Path, float], built_manifests: Mapping[Path, Manifest | None]
) -> MixtureEstimate | None:
    """Estimate a packed set's mixture; None if no drawn source has a known size."""
    tokens = _estimate_tokens(packed, bytes_by_folder, built_manifests)
    pack = packed.recipe["pack"]
    return estimate_mixture(pack, tokens) if tokens.keys() & (pack["weights"] or tokens).keys() else None


def missing_segment_tokens(
    segments: Target, bytes_by_folder: Mapping[Path, float], built_manifests: Mapping[Path, Manifest | None], root: Path
) -> dict[str, int]:
    """Return how many tokens each corpus lacks for the segments, if it lacks any."""
    from pipeline_assets.corpus.shards.recipe import SegmentsRecipe  # loads what `--help` does not need

    needed, missing = SegmentsRecipe.from_content(segments.recipe).tokens_by_corpus(), dict[str, int]()
    for shards in segments.upstream:
        name = str(shards.partition)
        manifest = read_manifest(root / shards.folder) if shards.is_external else built_manifests.get(shards.folder)
        estimates = _estimate_tokens(shards, bytes_by_folder, built_manifests)
        tokens = estimates.get(name, 0) if manifest is None else manifest.identity.counts["tokens"]
        if 0 < tokens < needed[name]:
            missing[name] = needed[name] - tokens
    return missing


def _estimate_tokens(
    target: Target, bytes_by_folder: Mapping[Path, float], built_manifests: Mapping[Path, Manifest | None]
) -> dict[str, int]:
    """Estimate the tokens of each upstream source; omit sources of unknown size.

    The size of a source is the text bytes in its manifest or, without a manifest, its stored bytes.
    """
    tokens = dict[str, int]()
    for corpus in source_corpora(target):
        manifest = built_manifests.get(corpus.folder)
        text = 0 if manifest is None else manifest.identity.counts.get("text_bytes", 0)
        stored_bytes = text * STORED_BYTES_PER_TEXT_BYTE or bytes_by_folder.get(corpus.folder, 0)
        if count := round(stored_bytes * TOKEN_BYTES_PER_STORED_BYTE / TOKEN_BYTES):
            tokens[str(corpus.partition)] = count
    return tokens


def source_corpora(target: Target) -> Iterator[Target]:
    """Yield the nearest upstream corpora that have a single source each."""
    for upstream in target.upstream:
        if upstream.partition is None:
            yield from source_corpora(upstream)
        elif upstream.kind.row_store_class is not None:
            yield upstream
