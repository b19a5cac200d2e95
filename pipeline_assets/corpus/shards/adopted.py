"""Reuse of earlier token shards for a source whose documents are unchanged."""

from dataclasses import replace

from pipeline_assets.corpus.corpus_shard import shard_sources
from pipeline_assets.corpus.sealed_shards import rows_by_shard
from pipeline_assets.corpus.tokens.families import TokenizerFile
from pipeline_assets.corpus.tokens.losses import losses_to_provenance
from pipeline_assets.corpus.tokens.sealed_losses import read_losses
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.reuse import link_content
from pipeline_assets.spine.staging import StagingDir


def adopt_shards(
    staging: StagingDir,
    earlier_shards: Artifact,
    corpus_versions: tuple[Artifact, Artifact],
    source: str,
    tokenizer: TokenizerFile,
) -> BuildResult | None:
    """Link the earlier token shards of a source instead of building new ones.

    `earlier_shards` must have the current stage version and recipe. `corpus_versions` is the pair of the earlier corpus
    and the new corpus. Return None if a build is needed: an earlier file is damaged, or the source's documents, their
    division into shards, or the tokenizer differ.
    """
    before, now = (_shard_contents(corpus, source) for corpus in corpus_versions)
    if before != now or earlier_shards.manifest.identity.decisions["tokenizer"] != tokenizer.recipe.content():
        return None
    linked, lost = link_content(staging, earlier_shards), read_losses(earlier_shards.manifest)
    losses = {} if lost is None else losses_to_provenance(lost)
    facts = {"taken_over_digest": earlier_shards.manifest.digest, **losses}
    return linked and replace(linked, provenance={**linked.provenance, **facts})


def _shard_contents(corpus: Artifact, source: str) -> list[tuple[str, int, str]]:
    """List (path, number of rows, content hash) for each shard of a source."""
    rows, hashes = rows_by_shard(corpus), {file.path: file.content_sha256 for file in corpus.manifest.identity.files}
    owners = shard_sources(corpus) or [source] * len(rows)
    return [(path, rows[path], hashes[path]) for path, owner in zip(rows, owners, strict=True) if owner == source]
