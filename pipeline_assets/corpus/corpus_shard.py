"""Shards of a corpus that has one or several sources."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pipeline_assets.corpus.document_shards import DocumentShard
from pipeline_assets.corpus.sealed_shards import document_shards
from pipeline_assets.spine.artifact import Artifact


@dataclass(frozen=True)
class CorpusShard(DocumentShard):
    """Document shard of a corpus; `name` is unique in the corpus.

    All documents of the shard are from `source`. `first_number` is the number of its first document in the corpus.
    """

    source: str
    first_number: int

    @property
    def unnumbered(self) -> "CorpusShard":
        """Copy with first number 0, for tasks that do not depend on the shard's position."""
        return replace(self, first_number=0)


def corpus_shards(sources: Mapping[str, Artifact], first_number: int = 0) -> list[CorpusShard]:
    """List the shards of sources in order, numbering documents from `first_number` on.

    If an artifact contains several sources, their names are read from its manifest instead of the keys of `sources`.
    """
    shards: list[CorpusShard] = []
    for source, corpus in sources.items():
        sources_of_shards = shard_sources(corpus)
        for number, shard in enumerate(document_shards(corpus)):
            fields = vars(shard) | ({} if sources_of_shards else {"name": f"{source}-{shard.name}"})
            owner = sources_of_shards[number] if sources_of_shards else source
            shards.append(CorpusShard(**fields, source=owner, first_number=first_number))
            first_number += shard.rows
    return shards


def shard_sources(corpus: Artifact) -> list[str]:
    """List each shard's source, in shard order; empty if the corpus names no sources."""
    identity = corpus.manifest.identity
    by_source, sources = identity.counts.get("by_source", {}), identity.recipe.get("sources", ())
    return [source for source in sources if source in by_source for _ in range(by_source[source].get("shards", 0))]


def sum_by_source(shards: Sequence[CorpusShard], counts: Iterable[Mapping[str, int]]) -> dict[str, Counter[str]]:
    """Add up counts by source; `counts` has the counts of each shard."""
    by_source: dict[str, Counter[str]] = {shard.source: Counter() for shard in shards}
    for shard, shard_counts in zip(shards, counts, strict=True):
        by_source[shard.source].update(shard_counts)
    return by_source
