"""The steps of a deduplication, each over files: sketches → exact copies → pairs → edges → decisions → documents.

What is worked on at a time are shards of the corpus, or ranges of what is sorted. Ranges depend on how much memory
there is; what they add up to doesn't.
"""

import contextlib
import functools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline_assets.corpus.dedup import candidates, sketches, verify
from pipeline_assets.corpus.dedup.candidates import (
    BLOCK_DOCUMENTS,
    PAIRS,
    BandRange,
    Block,
    HashRange,
    NeighbourRange,
    find_copies,
    propose_neighbours,
    propose_pairs,
    searching_device,
)
from pipeline_assets.corpus.dedup.clusters import near_duplicates
from pipeline_assets.corpus.dedup.corpus_shard import CorpusShard
from pipeline_assets.corpus.dedup.decided_shards import DecidedShard, KeptShard, decide_shard, keep_documents
from pipeline_assets.corpus.dedup.order import (
    are_members,
    document_numbers,
    even_ranges,
    include,
    no_documents,
    range_name,
    ranges,
    rows_of,
    save,
    write_run,
)
from pipeline_assets.corpus.dedup.recipe import BinarySketchRecipe, DedupRecipe, NearRecipe
from pipeline_assets.corpus.dedup.seen import SeenRun, SeenStore
from pipeline_assets.corpus.dedup.sketches import BANDS, BITS, FATAL, HASHES, ID_HASHES, IDS, sketch_shard
from pipeline_assets.corpus.dedup.verify import ComparedShard, PairRange, SetsFile, verify_pairs, write_sets
from pipeline_assets.corpus.doc_ids import first_repeat
from pipeline_assets.corpus.formats.arrow import mask, numbers, truths
from pipeline_assets.corpus.formats.parquet import read_columns
from pipeline_assets.corpus.spine.engine import RunSettings, RunStage, run_stages, settings_for
from pipeline_assets.corpus.spine.errors import InputError, UsageError, bare
from pipeline_assets.corpus.spine.sealing import WORK
from pipeline_assets.corpus.spine.staging import BuildFolder, Receipt, StagingDir, total_counts
from pipeline_assets.corpus.spine.worker import Window

AnyShard = CorpusShard | HashRange | BandRange | NeighbourRange | ComparedShard | PairRange | DecidedShard | KeptShard


_PROCESS_BYTES = 200 << 20  # libraries, compiled code, tables
_LEAST_SHARE_BYTES = 64 << 20


@dataclass(frozen=True)
class DedupRun:
    """One deduplication under way.

    Attributes:
        seen: stores whose documents come before those of the shards.
        run: runs a stage over its shards, by `dedup_work`.
    """

    building: StagingDir
    shards: Sequence[CorpusShard]
    recipe: DedupRecipe
    settings: RunSettings
    run: RunStage[Any]
    seen: Sequence[SeenStore] = ()

    @property
    def share_bytes(self) -> int:
        """What one worker may hold of the corpus. Where the limit is below what libraries take alone, it is passed."""
        for_all = self.settings.memory_bytes - _PROCESS_BYTES
        return max(for_all // max(self.settings.workers, 1) - _PROCESS_BYTES, _LEAST_SHARE_BYTES)

    @property
    def parts(self) -> int:
        """Into how many parts work is cut at least, so that all workers have some."""
        return 4 * self.settings.workers if self.settings.workers > 1 else 1

    @property
    def documents(self) -> int:
        """How many have a number: those seen before, and all of the shards, those that can't be read too."""
        return sum(store.documents for store in self.seen) + sum(shard.rows for shard in self.shards)


@contextlib.contextmanager
def open_run(
    building: StagingDir,
    shards: Sequence[CorpusShard],
    recipe: DedupRecipe,
    settings: RunSettings,
    seen: Sequence[SeenStore] = (),
) -> Iterator[DedupRun]:
    """A deduplication of these shards; its workers end with the block."""
    settings = settings_for(building, settings, sum(shard.file.stat().st_size for shard in shards))
    work = functools.partial(dedup_work, recipe=recipe, zstd_level=settings.zstd_level)
    with run_stages(work, settings, functools.partial(_load_kernels, recipe)) as run:
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


_NEAR, _OF_FIRSTS = f"{WORK}/near", f"{WORK}/of_firsts.parquet"
_COPIES, _COMPARED = f"{WORK}/copies.set", f"{WORK}/compared.set"
_HASH_BYTES, _BAND_BYTES, _PAIR_BYTES = 250, 120, 250  # of memory for a row: as read, as sorted, as written
_SEEN_ROWS = 4  # as they are read, take no more than one that is sorted and paired
_SHINGLE_BYTES = 24  # in a set as it is read, and with others in one array
_SETS_SHARE = 2  # sets may have half of a worker's memory

Runs = tuple[Path, ...]


@dataclass(frozen=True)
class ExactCopies:
    """Exact copies of a corpus; none where they aren't looked for.

    Attributes:
        runs: of them, see `find_copies`.
        copies: the set of them, in a file.
    """

    runs: Runs = ()
    copies: Path | None = None


@dataclass(frozen=True)
class NearDuplicates:
    """Near duplicates of a corpus; none where they aren't looked for.

    Attributes:
        runs: of them, see `near_duplicates`.
        of_firsts: those of which exact copies left before, in one run.
        edges: runs of all edges, in the order of their ranges.
    """

    runs: Runs = ()
    of_firsts: Path | None = None
    edges: Runs = ()
    counts: Mapping[str, int] = field(default_factory=dict)


def sketch_corpus(dedup: DedupRun) -> list[Receipt]:
    """Receipts of `sketch_shard`, one a shard.

    Raises:
        UsageError: no document has the quality column.
        InputError: a line that is no Document, or two documents with one id.
    """
    sketched = list(dedup.run("sketch", dedup.shards, dedup.building))
    counts, column = total_counts(sketched), dedup.recipe.quality_column
    if column is not None and counts["documents"] and not counts["with_quality"]:
        raise UsageError(
            f"no document has a `{column}`", bare("dedup.quality_column"), "name a number that is in their meta"
        )
    _check_ids(dedup, sketched)
    return sketched


def _check_ids(dedup: DedupRun, sketched: Sequence[Receipt]) -> None:
    """
    Raises:
        InputError: two documents have one id (says where).
    """
    repeat = first_repeat(runs_of(dedup.building, sketched, ID_HASHES))
    if repeat is None:
        return
    runs = runs_of(dedup.building, sketched, IDS)
    doc_id = read_columns(runs[repeat.shard])["doc_id"][repeat.row]
    found = [orders[is_it] for orders, is_it in (_with_id(run, doc_id) for run in runs)]
    first, second, *_ = np.sort(document_numbers(np.concatenate(found))).tolist()
    what = f"{doc_id} is the id of {_place(dedup, first)} and of {_place(dedup, second)}"
    raise InputError(what, dedup.building.target, "give every source ids of its own: normalise one again")


def _with_id(run: Path, doc_id: pa.Scalar) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """Orders of all documents of a run, and which of them have the id."""
    import pyarrow.compute as pc

    table = read_columns(run)
    return numbers(table["order"]), truths(pc.equal(table["doc_id"].combine_chunks(), doc_id))


def _place(dedup: DedupRun, number: int) -> str:
    shard = next(shard for shard in reversed(dedup.shards) if shard.first_number <= number)
    return f"{shard.source}/{shard.path} row {number - shard.first_number}"


def find_exact(dedup: DedupRun, sketched: Sequence[Receipt]) -> ExactCopies:
    """All exact copies, out of the sketches of the corpus."""
    runs = runs_of(dedup.building, sketched, HASHES)
    seen = tuple(store.hashes for store in dedup.seen)
    bounds = _even_ranges(dedup, runs, seen, _HASH_BYTES)
    work = [HashRange(low, high, runs, seen) for low, high in bounds]
    receipts = list(dedup.run("exact", work, dedup.building))
    found = runs_of(dedup.building, receipts)
    copies = no_documents(dedup.documents)
    for run in found:
        include(copies, numbers(read_columns(run, ["number"])["number"]))
    return ExactCopies(found, save(copies, dedup.building.path(_COPIES)))


def find_near(dedup: DedupRun, sketched: Sequence[Receipt], recipe: NearRecipe, exact: ExactCopies) -> NearDuplicates:
    """All near duplicates that bands propose, out of the sketches of the corpus and its texts."""
    building = dedup.building
    proposed = _propose(dedup, sketched, recipe, exact)
    pairs = runs_of(building, proposed, PAIRS)
    compared = no_documents(dedup.documents)
    for run in pairs:
        table = read_columns(run)
        include(compared, numbers(table["later"]))
        include(compared, numbers(table["earlier"]))
    members = save(compared, building.path(_COMPARED))
    to_compare = [ComparedShard(shard, members, recipe.proposer.shingle_words) for shard in dedup.shards]
    written = list(dedup.run("shingle", to_compare, building))
    edges = _verify(dedup, pairs, written, recipe)
    return resolve_clusters(dedup, runs_of(building, edges), exact, total_counts([*proposed, *written, *edges]))


def resolve_clusters(dedup: DedupRun, edges: Runs, exact: ExactCopies, counts: Mapping[str, int]) -> NearDuplicates:
    """Who goes, by the edges: runs of them in the order of their ranges; `counts` of how they came about."""
    dropped, firsts = no_documents(dedup.documents), no_documents(dedup.documents)
    for run in exact.runs:
        include(firsts, numbers(read_columns(run, ["first"])["first"]))
    runs, of_firsts = [], []
    for number, table in enumerate(near_duplicates(edges, dropped)):
        runs.append(dedup.building.path(f"{_NEAR}/{number:05d}.parquet"))
        write_run(runs[-1], runs[-1].name, table)
        of_firsts.append(table.filter(mask(are_members(numbers(table["number"]), firsts))))
    write_run(dedup.building.path(_OF_FIRSTS), _OF_FIRSTS, pa.concat_tables(of_firsts).sort_by("number"))
    return NearDuplicates(tuple(runs), dedup.building.path(_OF_FIRSTS), edges, counts)


def _propose(dedup: DedupRun, sketched: Sequence[Receipt], recipe: NearRecipe, exact: ExactCopies) -> list[Receipt]:
    if recipe.faiss is not None:
        return list(
            dedup.run("propose", _neighbours(dedup, sketched, recipe, recipe.faiss, exact.copies), dedup.building)
        )
    runs = runs_of(dedup.building, sketched, BANDS)
    seen = tuple(store.bands for store in dedup.seen if store.bands is not None)
    bounds = _even_ranges(dedup, runs, seen, _BAND_BYTES)
    work = [BandRange(low, high, runs, seen, exact.copies, recipe.max_compared) for low, high in bounds]
    return list(dedup.run("propose", work, dedup.building))


def _neighbours(
    dedup: DedupRun, sketched: Sequence[Receipt], recipe: NearRecipe, faiss: BinarySketchRecipe, copies: Path | None
) -> list[NeighbourRange]:
    """Blocks of documents, each with all those before it."""
    runs = runs_of(dedup.building, sketched, BITS)
    of_seen = [
        Block((store.sketches.path,), low, high, store.sketches.first_number)
        for store in dedup.seen
        if store.sketches is not None
        for low, high in ranges([store.sketches.path], BLOCK_DOCUMENTS)
    ]
    block_documents = max(min(BLOCK_DOCUMENTS, rows_of(runs) // dedup.parts), 1)
    own = [Block(runs, low, high) for low, high in ranges(runs, block_documents)]
    spans = (
        *(span for store in dedup.seen for span in store.sources),
        *((shard.first_number, shard.source) for shard in dedup.shards),
    )
    sources = spans if dedup.recipe.scope == "per-source" else None
    device = searching_device(dedup.settings.faiss_gpu)
    return [
        NeighbourRange(
            range_name(block.low, block.high),
            block,
            (*of_seen, *own[: number + 1]),
            copies,
            sources,
            faiss,
            recipe.max_compared,
            device,
        )
        for number, block in enumerate(own)
    ]


def _even_ranges(dedup: DedupRun, runs: Runs, seen: Sequence[SeenRun], row_bytes: int) -> list[tuple[int, int]]:
    """Ranges that fit into memory. What was seen is read with them, and most of it left out at once."""
    rows = rows_of(runs) + rows_of([run.path for run in seen]) // _SEEN_ROWS
    return even_ranges(rows, dedup.share_bytes // row_bytes)


def _verify(dedup: DedupRun, pairs: Runs, written: Sequence[Receipt], recipe: NearRecipe) -> list[Receipt]:
    building = dedup.building
    own = (
        SetsFile(0, building.path(receipt.files[0].path), building.path(receipt.files[1].path))
        for receipt in written
        if receipt.files
    )
    sets = (*(file for store in dedup.seen for file in store.sets), *own)
    for_sets = dedup.share_bytes // _SETS_SHARE
    most = recipe.max_compared if recipe.faiss is not None else None
    bounds = ranges(pairs, min(for_sets // _PAIR_BYTES, -(-rows_of(pairs) // dedup.parts)))
    work = [
        PairRange(low, high, pairs, sets, recipe.threshold, for_sets // _SHINGLE_BYTES, most) for low, high in bounds
    ]
    return list(dedup.run("verify", work, building))


def write_decisions(
    dedup: DedupRun, sketched: Sequence[Receipt], exact: ExactCopies, near: NearDuplicates
) -> list[Receipt]:
    """Receipts of `decide_shard`, one a shard."""
    work = [
        DecidedShard(
            shard,
            runs_of(dedup.building, [sketch], IDS),
            exact.runs,
            near.runs,
            near.of_firsts,
            tuple(dedup.seen),
        )
        for shard, sketch in zip(dedup.shards, sketched, strict=True)
    ]
    return list(dedup.run("decide", work, dedup.building))


def write_kept(
    dedup: DedupRun, sketched: Sequence[Receipt], decisions: Sequence[Receipt], samples: Collection[int]
) -> list[Receipt]:
    """Receipts of `keep_documents`, one a shard; `samples` are numbers of documents."""
    work = []
    for shard, sketch, decision in zip(dedup.shards, sketched, decisions, strict=True):
        rows = frozenset(number - shard.first_number for number in samples)
        dropped, fatal = dedup.building.path(decision.files[1].path), frozenset(sketch.notes[FATAL])
        work.append(KeptShard(shard, dropped, fatal, frozenset(row for row in rows if 0 <= row < shard.rows)))
    return list(dedup.run("keep", work, dedup.building))


def runs_of(building: StagingDir, receipts: Iterable[Receipt], area: str = WORK) -> Runs:
    """The runs below an area that receipts name."""
    return tuple(
        building.path(file.path) for receipt in receipts for file in receipt.files if file.path.startswith(f"{area}/")
    )
