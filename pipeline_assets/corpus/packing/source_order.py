"""The order of the sources that are packed."""

import difflib
from collections.abc import Sequence

from pipeline_assets.corpus.dedup.corpus_shard import CorpusShard
from pipeline_assets.corpus.packing.recipe import PackRecipe
from pipeline_assets.corpus.spine.errors import UsageError, bare


def in_order(shards: Sequence[CorpusShard], recipe: PackRecipe) -> list[CorpusShard]:
    """The shards by their sources' names; those of a source as they were given. One that holds nothing needs no weight.

    Raises:
        UsageError: a source without a weight, or a weight without a source.
    """
    given = {shard.source for shard in shards}
    for source in recipe.sources:
        if source not in given:
            nearest = difflib.get_close_matches(source, given, n=1)
            hint = f"did you mean {nearest[0]}?" if nearest else f"there are {', '.join(sorted(given)) or 'none'}"
            raise UsageError(f"there is no source {source}", bare("pack.weights"), hint)
    if without := sorted({shard.source for shard in shards if shard.rows} - recipe.weights.keys()):
        raise UsageError(
            f"the source {without[0]} has no weight",
            bare("pack.weights"),
            "give it one, or pack a corpus without it",
        )
    return sorted((shard for shard in shards if shard.source in recipe.weights), key=lambda shard: shard.source)
