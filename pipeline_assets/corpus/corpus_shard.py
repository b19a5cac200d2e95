"""Shards of a corpus of one source or of several."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline_assets.corpus.document_shards import DocumentShard, shard_rows
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX
from pipeline_assets.spine.artifact import Artifact


@dataclass(frozen=True)
class CorpusShard(DocumentShard):
    """One Document shard of one source.

    Attributes:
        name: unique in the corpus; names what is made of it.
        source: the source's name.
        path: in the source's artifact.
        first_number: the number of its first document in the corpus, see `dedup.steps`.
    """

    source: str
    first_number: int


def corpus_shards(sources: Mapping[str, Artifact], first_number: int = 0) -> list[CorpusShard]:
    """The shards of sources, given by their names, in this order; documents are numbered from `first_number` on.

    An artifact may also hold several sources, whose shards it has counted by source: its own name is no source's then.
    """
    shards: list[CorpusShard] = []
    for source, corpus in sources.items():
        several = _sources_within(corpus)
        for place, (path, rows) in enumerate(shard_rows(corpus).items()):
            own = Path(path).name.removesuffix(SUFFIX)
            name, owner = (own, several[place]) if several else (f"{source}-{own}", source)
            shards.append(CorpusShard(name, path, corpus.path(path), rows, owner, first_number))
            first_number += rows
    return shards


def _sources_within(corpus: Artifact) -> list[str]:
    """The source of each shard, in the recipe's order: counts in a manifest are sorted. None where all are of one."""
    identity = corpus.manifest.identity
    by_source, sources = identity.counts.get("by_source", {}), identity.recipe.get("sources", ())
    return [source for source in sources if source in by_source for _ in range(by_source[source].get("shards", 0))]


def add_by_source(shards: Sequence[CorpusShard], counts: Iterable[Mapping[str, int]]) -> dict[str, Counter[str]]:
    """Counts of shards added up, by source."""
    by_source: dict[str, Counter[str]] = {shard.source: Counter() for shard in shards}
    for shard, of_shard in zip(shards, counts, strict=True):
        by_source[shard.source].update(of_shard)
    return by_source
