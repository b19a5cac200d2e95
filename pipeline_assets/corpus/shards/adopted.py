"""Reuse of an earlier version's token shards for a source with equal documents."""

from collections.abc import Sequence
from dataclasses import replace

from pipeline_assets.corpus.corpus_shard import CorpusShard
from pipeline_assets.corpus.tokens.families import TokenizerFile
from pipeline_assets.corpus.tokens.losses import losses_to_provenance
from pipeline_assets.corpus.tokens.sealed_losses import read_losses
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.reuse import link_content
from pipeline_assets.spine.staging import StagingDir

Corpus = tuple[Artifact, Sequence[CorpusShard]]
"""An artifact and its shards of one source."""


def adopt_shards(
    staging: StagingDir, earlier: Artifact, corpora: tuple[Corpus, Corpus], tokenizer: TokenizerFile
) -> BuildResult | None:
    """Link an earlier version's token shards; return None if new shards may differ.

    `earlier` are token shards with the same stage version and recipe. `corpora` has the corpus that they were built
    from, and the new corpus. New token shards may differ if the documents, their division into shards, or the
    tokenizer differ.
    """
    before, now = map(_shard_contents, corpora)
    if before != now or earlier.manifest.identity.decisions["tokenizer"] != tokenizer.recipe.content():
        return None
    linked, lost = link_content(staging, earlier), read_losses(earlier.manifest)
    facts = {"taken_over_digest": earlier.manifest.digest, **({} if lost is None else losses_to_provenance(lost))}
    return replace(linked, provenance={**linked.provenance, **facts})


def _shard_contents(corpus: Corpus) -> list[tuple[str, int, str]]:
    """List path, rows and content hash of each shard, to compare documents."""
    artifact, shards = corpus
    hashes = {file.path: file.content_sha256 for file in artifact.manifest.identity.files}
    return [(shard.path, shard.rows, hashes[shard.path]) for shard in shards]
