"""The steps of a deduplication, each over files: sketches → exact copies → pairs → edges → decisions.

What is worked on at a time are shards of the corpus, or ranges of what is sorted. Ranges depend on how much memory
there is; what they add up to doesn't.
"""

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipeline_assets.corpus.dedup.candidates import LARGEST, PAIRS, BandRange, propose_pairs
from pipeline_assets.corpus.dedup.clusters import near_duplicates
from pipeline_assets.corpus.dedup.corpus_shard import CorpusShard
from pipeline_assets.corpus.dedup.decisions import DecidedShard, decide_shard
from pipeline_assets.corpus.dedup.exact import HashRange, find_copies
from pipeline_assets.corpus.dedup.order import are_members, include, no_documents, save
from pipeline_assets.corpus.dedup.recipe import DedupRecipe, NearRecipe
from pipeline_assets.corpus.dedup.settings import DedupSettings
from pipeline_assets.corpus.dedup.shingle_sets import ComparedShard, write_sets
from pipeline_assets.corpus.dedup.sketches import BANDS, HASHES, IDS, load_kernels, sketch_shard
from pipeline_assets.corpus.dedup.sorted_runs import even_ranges, ranges, rows_of, write_run
from pipeline_assets.corpus.dedup.verify import PairRange, verify_pairs
from pipeline_assets.corpus.formats.arrow import mask, numbers
from pipeline_assets.corpus.formats.parquet import read_columns
from pipeline_assets.corpus.spine.building import Building, Receipt, total_counts
from pipeline_assets.corpus.spine.engine import run_stage
from pipeline_assets.corpus.spine.errors import UsageError
from pipeline_assets.corpus.spine.sealing import WORK

_NEAR, _OF_FIRSTS = f"{WORK}/near", f"{WORK}/of_firsts.parquet"
_COPIES, _COMPARED = f"{WORK}/copies.set", f"{WORK}/compared.set"
_HASH_BYTES, _BAND_BYTES, _PAIR_BYTES = 250, 120, 250  # of memory for a row: as read, as sorted, as written
_SHINGLE_BYTES = 24  # in a set as it is read, and with others in one array
_SETS_SHARE = 2  # sets may have half of a worker's memory

Runs = tuple[Path, ...]


@dataclass(frozen=True)
class ExactCopies:
    """Exact copies of a corpus.

    Attributes:
        runs: of them, see `find_copies`.
        copies: the set of them, in a file.
    """

    runs: Runs
    copies: Path
    counts: Mapping[str, int]


@dataclass(frozen=True)
class NearDuplicates:
    """Near duplicates of a corpus.

    Attributes:
        runs: of them, see `near_duplicates`.
        of_firsts: those of which exact copies left before, in one run.
        edges: runs of all edges, in the order of their ranges.
        largest: of the buckets in which not all were compared, sizes and the orders of their first documents.
    """

    runs: Runs
    of_firsts: Path
    edges: Runs
    counts: Mapping[str, int]
    largest: Sequence[Any]


def sketch_corpus(
    building: Building, shards: Sequence[CorpusShard], recipe: DedupRecipe, settings: DedupSettings
) -> list[Receipt]:
    """Receipts of `sketch_shard`, one a shard.

    Raises:
        UsageError: no document has the quality column.
        InputError: a line that is no Document.
    """
    work, warm_up = functools.partial(sketch_shard, recipe=recipe), functools.partial(load_kernels, recipe)
    sketches = list(run_stage("sketch", work, shards, building, settings.engine, warm_up))
    counts = total_counts(sketches)
    if recipe.quality_column is not None and counts["documents"] and not counts["with_quality"]:
        fix = "name a number that documents have in their meta"
        raise UsageError(f"no document has a `{recipe.quality_column}`", "quality_column", fix)
    return sketches


def find_exact(
    building: Building, shards: Sequence[CorpusShard], sketches: Sequence[Receipt], settings: DedupSettings
) -> ExactCopies:
    """All exact copies, out of the sketches of the corpus."""
    runs = _runs(building, sketches, HASHES)
    bounds = even_ranges(rows_of(runs), settings.share_bytes // _HASH_BYTES)
    work = [HashRange(_name(low, high), low, high, runs) for low, high in bounds]
    receipts = list(run_stage("exact", find_copies, work, building, settings.engine))
    found = _runs(building, receipts)
    copies = no_documents(sum(shard.rows for shard in shards))
    for run in found:
        include(copies, numbers(read_columns(run, ["number"])["number"]))
    return ExactCopies(found, save(copies, building.path(_COPIES)), total_counts(receipts))


def find_near(
    building: Building,
    shards: Sequence[CorpusShard],
    sketches: Sequence[Receipt],
    recipe: NearRecipe,
    exact: ExactCopies | None,
    settings: DedupSettings,
) -> NearDuplicates:
    """All near duplicates that bands propose, out of the sketches of the corpus and its texts."""
    proposed = _propose(building, sketches, recipe, exact, settings)
    pairs = _runs(building, proposed, PAIRS)
    documents = sum(shard.rows for shard in shards)
    compared = no_documents(documents)
    for run in pairs:
        table = read_columns(run)
        include(compared, numbers(table["later"]))
        include(compared, numbers(table["earlier"]))
    members = save(compared, building.path(_COMPARED))
    to_compare = [ComparedShard(shard, members, recipe.minhash.shingle_words) for shard in shards]
    written = list(run_stage("shingle", write_sets, to_compare, building, settings.engine))
    edges = _verify(building, shards, pairs, written, recipe, settings)
    dropped, firsts = no_documents(documents), no_documents(documents)
    for run in exact.runs if exact is not None else ():
        include(firsts, numbers(read_columns(run)["first"]))
    runs, of_firsts = [], []
    for number, table in enumerate(near_duplicates(_runs(building, edges), dropped)):
        runs.append(building.path(f"{_NEAR}/{number:05d}.parquet"))
        write_run(runs[-1], runs[-1].name, table)
        of_firsts.append(table.filter(mask(are_members(numbers(table["number"]), firsts))))
    write_run(building.path(_OF_FIRSTS), _OF_FIRSTS, pa.concat_tables(of_firsts).sort_by("number"))
    largest = sorted((entry for receipt in proposed for entry in receipt.notes[LARGEST]), reverse=True)
    counts = total_counts([*proposed, *written, *edges])
    return NearDuplicates(tuple(runs), building.path(_OF_FIRSTS), _runs(building, edges), counts, largest)


def _propose(
    building: Building,
    sketches: Sequence[Receipt],
    recipe: NearRecipe,
    exact: ExactCopies | None,
    settings: DedupSettings,
) -> list[Receipt]:
    runs = _runs(building, sketches, BANDS)
    bounds = even_ranges(rows_of(runs), settings.share_bytes // _BAND_BYTES)
    copies = exact.copies if exact is not None else None
    work = [BandRange(_name(low, high), low, high, runs, copies, recipe.max_compared) for low, high in bounds]
    return list(run_stage("propose", propose_pairs, work, building, settings.engine))


def _verify(
    building: Building,
    shards: Sequence[CorpusShard],
    pairs: Runs,
    written: Sequence[Receipt],
    recipe: NearRecipe,
    settings: DedupSettings,
) -> list[Receipt]:
    sets = tuple(
        (shard.first_number, building.path(receipt.files[0].path), building.path(receipt.files[1].path))
        for shard, receipt in zip(shards, written, strict=True)
        if receipt.files
    )
    for_sets = settings.share_bytes // _SETS_SHARE
    work = [
        PairRange(_name(low, high), low, high, pairs, sets, recipe.threshold, for_sets // _SHINGLE_BYTES)
        for low, high in ranges(pairs, min(for_sets // _PAIR_BYTES, -(-rows_of(pairs) // settings.parts)))
    ]
    return list(run_stage("verify", verify_pairs, work, building, settings.engine))


def decide(
    building: Building,
    shards: Sequence[CorpusShard],
    sketches: Sequence[Receipt],
    exact: ExactCopies | None,
    near: NearDuplicates | None,
    settings: DedupSettings,
) -> list[Receipt]:
    """Receipts of `decide_shard`, one a shard."""
    work = [
        DecidedShard(
            shard,
            _runs(building, [sketch], IDS),
            exact.runs if exact is not None else (),
            near.runs if near is not None else (),
            near.of_firsts if near is not None else None,
        )
        for shard, sketch in zip(shards, sketches, strict=True)
    ]
    stage = functools.partial(decide_shard, zstd_level=settings.zstd_level)
    return list(run_stage("decide", stage, work, building, settings.engine))


def _runs(building: Building, receipts: Iterable[Receipt], area: str = WORK) -> Runs:
    return tuple(
        building.path(file.path) for receipt in receipts for file in receipt.files if file.path.startswith(f"{area}/")
    )


def _name(low: int, high: int) -> str:
    return f"{low:016x}-{high:017x}"
