"""One deduplication under way: its shards, its recipe, and the workers that all its steps share."""

import contextlib
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pipeline_assets.corpus.dedup import candidates, sketches, verify
from pipeline_assets.corpus.dedup.candidates import BandRange, propose_pairs
from pipeline_assets.corpus.dedup.corpus_shard import CorpusShard
from pipeline_assets.corpus.dedup.decisions import DecidedShard, decide_shard
from pipeline_assets.corpus.dedup.exact import HashRange, find_copies
from pipeline_assets.corpus.dedup.kept_shards import KeptShard, keep_documents
from pipeline_assets.corpus.dedup.neighbours import NeighbourRange, propose_neighbours
from pipeline_assets.corpus.dedup.recipe import DedupRecipe
from pipeline_assets.corpus.dedup.seen import SeenStore
from pipeline_assets.corpus.dedup.settings import DedupSettings
from pipeline_assets.corpus.dedup.shingle_sets import ComparedShard, write_sets
from pipeline_assets.corpus.dedup.sketches import sketch_shard
from pipeline_assets.corpus.dedup.verify import PairRange, verify_pairs
from pipeline_assets.corpus.spine.building import BuildFolder, Building, Receipt
from pipeline_assets.corpus.spine.engine import RunStage, run_stages, settings_for
from pipeline_assets.corpus.spine.stage import Window

AnyShard = CorpusShard | HashRange | BandRange | NeighbourRange | ComparedShard | PairRange | DecidedShard | KeptShard


@dataclass(frozen=True)
class DedupRun:
    """One deduplication under way.

    Attributes:
        seen: stores whose documents come before those of the shards.
        run: runs a stage over its shards, by `dedup_work`.
    """

    building: Building
    shards: Sequence[CorpusShard]
    recipe: DedupRecipe
    settings: DedupSettings
    run: RunStage[Any]
    seen: Sequence[SeenStore] = ()

    @property
    def documents(self) -> int:
        """How many have a number: those seen before, and all of the shards, those that can't be read too."""
        return sum(store.documents for store in self.seen) + sum(shard.rows for shard in self.shards)


@contextlib.contextmanager
def open_run(
    building: Building,
    shards: Sequence[CorpusShard],
    recipe: DedupRecipe,
    settings: DedupSettings,
    seen: Sequence[SeenStore] = (),
) -> Iterator[DedupRun]:
    """A deduplication of these shards; its workers end with the block."""
    engine = settings_for(building, settings.engine, sum(shard.file.stat().st_size for shard in shards))
    settings = replace(settings, engine=engine)
    work = functools.partial(dedup_work, recipe=recipe, zstd_level=settings.zstd_level)
    with run_stages(work, settings.engine, functools.partial(_load_kernels, recipe)) as run:
        yield DedupRun(building, shards, recipe, settings, run, seen)


def _load_kernels(recipe: DedupRecipe) -> None:
    sketches.load_kernels(recipe)
    if recipe.near is not None:
        candidates.load_kernels()
        verify.load_kernels()


def dedup_work(shard: AnyShard, window: Window, folder: BuildFolder, recipe: DedupRecipe, zstd_level: int) -> Receipt:
    """What every stage does to one of its shards: their types tell the stages apart."""
    match shard:
        case CorpusShard():
            return sketch_shard(shard, window, folder, recipe)
        case HashRange():
            return find_copies(shard, window, folder)
        case BandRange():
            return propose_pairs(shard, window, folder)
        case NeighbourRange():
            return propose_neighbours(shard, window, folder)
        case ComparedShard():
            return write_sets(shard, window, folder)
        case PairRange():
            return verify_pairs(shard, window, folder)
        case DecidedShard():
            return decide_shard(shard, window, folder, zstd_level)
        case KeptShard():
            return keep_documents(shard, window, folder, zstd_level)
