"""Token shards of an earlier version, linked for sources with equal documents.

The documents of such a source are the same rows in both versions.
"""

from collections.abc import Sequence
from dataclasses import replace

from pipeline_assets.corpus.corpus_shard import CorpusShard
from pipeline_assets.corpus.tokens.families import TokenizerFile
from pipeline_assets.corpus.tokens.losses import lost_text, read_lost_text
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.reuse import link_content
from pipeline_assets.spine.staging import StagingDir

Corpus = tuple[Artifact, Sequence[CorpusShard]]
"""An artifact, and those of its shards that belong to one source."""


def adopt_shards(
    building: StagingDir, earlier: Artifact, corpora: tuple[Corpus, Corpus], tokenizer: TokenizerFile
) -> BuildResult | None:
    """Link the files of an earlier version.

    The digest equals the digest of a fresh build.

    Args:
        earlier: token shards of the same stage and recipe.
        corpora: the documents that `earlier` was derived from, and the documents of this version.
    Returns:
        None if the rows, their shards, or the tokenizer differ.
    """
    before, now = map(_content, corpora)
    if before != now or earlier.manifest.identity.decisions["tokenizer"] != tokenizer.recipe.content():
        return None
    linked, lost = link_content(building, earlier), read_lost_text(earlier.manifest)
    told = {"taken_over_digest": earlier.manifest.digest, **({} if lost is None else lost_text(lost))}
    return replace(linked, provenance={**linked.provenance, **told})


def _content(corpus: Corpus) -> list[tuple[str, int, str]]:
    """List path, rows and content hash of each shard.

    Equal lists are equal documents in equal order.
    """
    artifact, shards = corpus
    hashes = {file.path: file.content_sha256 for file in artifact.manifest.identity.files}
    return [(shard.path, shard.rows, hashes[shard.path]) for shard in shards]
