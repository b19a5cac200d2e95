"""Documents with something in common, found range by range: exact copies by the hashes of their normalised texts, and
pairs to be compared by a band of their signatures, or by faiss as binary sketches that differ in few bits.

A bit of a sketch is one of a mixed number of a MinHash signature (b-bit minwise hashing with b = 1; Li and König
2010, arXiv 0910.3349): of two documents it is equal with a probability of (1 + s) / 2, where s is their Jaccard
similarity. The search is exhaustive, so what is proposed depends on the sketches alone, whatever device searches.
"""

import itertools
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import compiled
from pipeline_assets.corpus.dedup.order import (
    KeyRange,
    are_members,
    distinct_pairs,
    document_numbers,
    is_seen,
    load,
    read_range,
    sorted_pairs,
    write_run,
)
from pipeline_assets.corpus.dedup.recipe import BinarySketchRecipe
from pipeline_assets.corpus.dedup.seen import SeenRun, with_seen
from pipeline_assets.corpus.formats.arrow import column_of, numbers, table_of
from pipeline_assets.corpus.spine.errors import UsageError, bare, install_hint
from pipeline_assets.corpus.spine.sealing import WORK
from pipeline_assets.corpus.spine.staging import BuildFolder, OutputFile, Receipt
from pipeline_assets.corpus.spine.worker import Window

EXACT = f"{WORK}/exact"


@dataclass(frozen=True)
class HashRange(KeyRange):
    """A range of hashes, of all runs of them, and of documents seen before."""

    seen: tuple[SeenRun, ...]


def find_copies(shard: HashRange, window: Window, folder: BuildFolder) -> Receipt:
    """The copies in one range.

    Files: a run by `number` of the copy; `order` and `first`, `first_id`: the order and id of the document that stays.
    Counts: `copies`.
    """
    table = with_seen(shard, shard.seen)
    high, low, order = (numbers(table[name]) for name in ("high", "low", "order"))
    by = np.lexsort((order, low, high))
    is_copy = np.zeros(len(by), bool)
    is_copy[1:] = (high[by[1:]] == high[by[:-1]]) & (low[by[1:]] == low[by[:-1]])
    places = np.arange(len(by))
    firsts = np.maximum.accumulate(np.where(is_copy, 0, places))
    copies = np.flatnonzero(is_copy & ~is_seen(order[by]))
    first_rows, copy_numbers = by[firsts[copies]], document_numbers(order[by[copies]])
    by_number = np.argsort(copy_numbers)
    first_rows = first_rows[by_number]
    run = table_of(
        {
            "number": copy_numbers[by_number],
            "first": order[first_rows],
            "first_id": table["doc_id"].take(column_of(first_rows)),
        }
    )
    name = f"{EXACT}/{shard.name}.parquet"
    return Receipt([write_run(folder.path(name), name, run)], {"copies": len(copies)})


PAIRS = f"{WORK}/pairs"
MAX_PAIRS = 1 << 21  # in a run: 32 MiB, and as much again three times while they are sorted


@dataclass(frozen=True)
class BandRange(KeyRange):
    """A range of keys, of all runs of bands, and of documents seen before.

    Attributes:
        copies: the set of exact copies, which left before; None where none were looked for.
        max_compared: as in the recipe.
    """

    seen: tuple[SeenRun, ...]
    copies: Path | None
    max_compared: int


def propose_pairs(shard: BandRange, window: Window, folder: BuildFolder) -> Receipt:
    """Every two documents that share a band of the range; in a large bucket, each with its first ones alone. Not two
    that were seen before.

    Files: runs by `later`, the order of the later of two, and `earlier`; a pair may be in several.
    Counts: `buckets` of two documents or more, `capped_buckets`, `proposed` pairs, one for each band.
    """
    keys, orders = _read(shard)
    places = np.arange(len(keys))
    is_first = np.ones(len(keys), bool)
    is_first[1:] = keys[1:] != keys[:-1]
    starts = np.maximum.accumulate(np.where(is_first, places, 0))
    compared = np.where(is_seen(orders), 0, np.minimum(places - starts, shard.max_compared))
    files: list[OutputFile] = []
    for first, stop in _chunks(compared):
        pairs = np.empty((2, int(compared[first:stop].sum())), np.uint64)
        _pair(orders, starts, compared, first, stop, pairs)
        later, earlier = distinct_pairs(pairs[0], pairs[1])
        name = f"{PAIRS}/{shard.name}-{len(files):05d}.parquet"
        files.append(write_run(folder.path(name), name, table_of({"later": later, "earlier": earlier})))
    sizes = np.diff(np.append(np.flatnonzero(is_first), len(keys)))
    capped = np.flatnonzero(sizes > shard.max_compared + 1)
    return Receipt(
        files,
        {"buckets": int((sizes > 1).sum()), "capped_buckets": len(capped), "proposed": int(compared.sum())},
    )


def load_kernels() -> None:
    """Loads the compiled code that `propose_pairs` needs."""
    one, none = np.ones(1, np.uint64), np.zeros(1, np.int64)
    are_members(one, np.zeros(1, np.uint8))
    _pair(*sorted_pairs(one, one)[1:], none, none, 0, 1, np.empty((2, 0), np.uint64))


def _read(shard: BandRange) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Keys and orders of the documents that are still there, in the order of both."""
    table = with_seen(shard, shard.seen)
    keys, orders = numbers(table["key"]), numbers(table["order"])
    if shard.copies is not None:
        stays = ~are_members(orders, load(shard.copies))
        keys, orders = keys[stays], orders[stays]
    return sorted_pairs(keys, orders)


def _chunks(compared: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Spans of rows with about `MAX_PAIRS` pairs each."""
    before = np.cumsum(compared)
    cuts = np.searchsorted(before, np.arange(MAX_PAIRS, before[-1:].sum(), MAX_PAIRS)) + 1
    return list(itertools.pairwise([0, *sorted({*cuts.tolist(), len(compared)})]))


@compiled
def _pair(
    orders: NDArray[np.uint64],
    starts: NDArray[np.int64],
    compared: NDArray[np.int64],
    first: int,
    stop: int,
    pairs: NDArray[np.uint64],
) -> None:
    """Pairs each row with the first `compared` of its bucket: later ones in `pairs[0]`, earlier ones in `pairs[1]`."""
    number = 0
    for place in range(first, stop):
        for other in range(starts[place], starts[place] + compared[place]):
            pairs[0, number], pairs[1, number] = orders[place], orders[other]
            number += 1


BLOCK_DOCUMENTS = 1 << 16
_QUERIES = 128  # at a time: as many answers as all of them against a block take 100 MiB
_NEAREST = 1024  # a GPU finds so many, not all within a distance
logger = logging.getLogger("corpusmill")


@dataclass(frozen=True)
class Block:
    """Documents whose order lies in a range, in runs of sketches; `offset` is added to the orders that these have."""

    runs: tuple[Path, ...]
    low: int
    high: int
    offset: int = 0


@dataclass(frozen=True)
class NeighbourRange:
    """Documents that are compared to those before them.

    Attributes:
        queries: the documents.
        before: blocks of all documents up to these, in order; the last is `queries`.
        copies: the set of exact copies, which left before; None where none were looked for.
        sources: (number of the first document, source) of every span of one source; None where documents of any two
            are compared.
        max_compared: as in the recipe.
        device: the GPU that searches; None for the CPU.
    """

    name: str
    queries: Block
    before: tuple[Block, ...]
    copies: Path | None
    sources: tuple[tuple[int, str], ...] | None
    recipe: BinarySketchRecipe
    max_compared: int
    device: int | None
    rows: int = 0


class _Sketches(NamedTuple):
    """Documents in order: orders, uint64; sketches, uint8 of shape (documents, bytes); their sources as numbers."""

    orders: NDArray[np.uint64]
    bits: NDArray[np.uint8]
    sources: NDArray[np.int64]


def propose_neighbours(shard: NeighbourRange, window: Window, folder: BuildFolder) -> Receipt:
    """Each document of the range with the first `max_compared` of those before it that are near enough, in each block.

    Files: runs of pairs, as `propose_pairs` writes them. Counts: `proposed` pairs.
    """
    faiss = load_faiss()
    faiss.omp_set_num_threads(1)
    queries = _read_sketches(shard.queries, shard)
    files: list[OutputFile] = []
    pending: list[tuple[NDArray[np.uint64], NDArray[np.uint64]]] = []
    proposed = waiting = 0
    for block in shard.before:
        base = queries if block == shard.queries else _read_sketches(block, shard)
        for later, earlier in _pairs(faiss, queries, base, shard):
            pending.append((later, earlier))
            waiting += len(later)
            proposed += len(later)
            if waiting >= MAX_PAIRS:
                files.append(_write(pending, shard, folder, len(files)))
                pending, waiting = [], 0
    files.append(_write(pending, shard, folder, len(files)))
    return Receipt(files, {"proposed": proposed})


def _read_sketches(block: Block, shard: NeighbourRange) -> _Sketches:
    table = read_range(block.runs, block.low, block.high).combine_chunks()
    orders = numbers(table["order"]) + np.uint64(block.offset)
    data = np.frombuffer(b"".join(table["sketch"].to_pylist()), np.uint8)
    bits = data.reshape(len(orders), shard.recipe.bits // 8)
    by = np.argsort(orders)
    if shard.copies is not None:
        by = by[~are_members(orders[by], load(shard.copies))]
    orders = orders[by]
    return _Sketches(orders, bits[by], _sources_of(document_numbers(orders), shard.sources))


def _sources_of(documents: NDArray[np.uint64], spans: Sequence[tuple[int, str]] | None) -> NDArray[np.int64]:
    if spans is None:
        return np.zeros(len(documents), np.int64)
    names = sorted({source for _, source in spans})
    codes = np.array([names.index(source) for _, source in spans])
    firsts = np.array([first for first, _ in spans], np.uint64)
    found: NDArray[np.int64] = codes[np.searchsorted(firsts, documents, side="right") - 1]
    return found


def _pairs(
    faiss: ModuleType, queries: _Sketches, base: _Sketches, shard: NeighbourRange
) -> Iterator[tuple[NDArray[np.uint64], NDArray[np.uint64]]]:
    """(later, earlier) of near ones, source by source, some queries at a time."""
    for source in np.intersect1d(queries.sources, base.sources).tolist():
        own, others = (part.orders[part.sources == source] for part in (queries, base))
        bits = queries.bits[queries.sources == source]
        index = _Index(faiss, base.bits[base.sources == source], shard)
        for start in range(0, len(own), _QUERIES):
            asked = own[start : start + _QUERIES]
            query, place = index.near(bits[start : start + _QUERIES])
            is_before = others[place] < asked[query]
            query, place = query[is_before], place[is_before]
            rank = np.arange(len(query)) - np.searchsorted(query, query)
            first_ones = rank <= shard.max_compared  # one more than are compared tells that there were more
            yield asked[query[first_ones]], others[place[first_ones]]


class _Index:
    """All sketches of a block, on the device that searches."""

    def __init__(self, faiss: ModuleType, bits: NDArray[np.uint8], shard: NeighbourRange) -> None:
        self._max_distance = shard.recipe.max_distance
        self._all = faiss.IndexBinaryFlat(shard.recipe.bits)
        self._all.add(np.ascontiguousarray(bits))
        self._gpu: Any = None
        if shard.device is not None:
            config = faiss.GpuIndexBinaryFlatConfig()
            config.device = shard.device
            self._gpu = faiss.GpuIndexBinaryFlat(faiss.StandardGpuResources(), self._all, config)

    def near(self, queries: NDArray[np.uint8]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(query, place in the block) of all near ones, by both."""
        if self._gpu is None:
            return self._within(queries, np.arange(len(queries)))
        nearest = min(_NEAREST, self._all.ntotal)
        distances, places = self._gpu.search(queries, nearest)
        is_near = distances <= self._max_distance
        is_cut = is_near[:, -1] & (nearest < self._all.ntotal)  # there may be more of them than were asked for
        query, column = np.nonzero(is_near & ~is_cut[:, None])
        others = self._within(queries[is_cut], np.flatnonzero(is_cut))
        query, place = np.concatenate([query, others[0]]), np.concatenate([places[query, column], others[1]])
        by = np.lexsort((place, query))
        return query[by], place[by]

    def _within(
        self, queries: NDArray[np.uint8], names: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        limits, _, places = self._all.range_search(np.ascontiguousarray(queries), self._max_distance + 1)
        query = np.repeat(names, np.diff(limits.astype(np.int64)))
        by = np.lexsort((places, query))
        return query[by], places[by]


def _write(
    pending: Sequence[tuple[NDArray[np.uint64], NDArray[np.uint64]]],
    shard: NeighbourRange,
    folder: BuildFolder,
    number: int,
) -> OutputFile:
    columns = (np.concatenate([np.empty(0, np.uint64), *(pair[side] for pair in pending)]) for side in (0, 1))
    later, earlier = distinct_pairs(*columns)
    name = f"{PAIRS}/{shard.name}-{number:05d}.parquet"
    return write_run(folder.path(name), name, table_of({"later": later, "earlier": earlier}))


def load_faiss() -> ModuleType:
    """
    Raises:
        UsageError: it isn't installed.
    """
    try:
        import faiss
    except ImportError:
        fix = f"{install_hint('faiss')}, or let minhash propose"
        raise UsageError("faiss isn't installed", bare("dedup.near.faiss"), fix) from None
    module: ModuleType = faiss
    return module


def searching_device(wanted: int | None) -> int | None:
    """The GPU that searches: the one that is wanted, else the first; None, the CPU, if there is none or none is wanted.
    Says which.

    Raises:
        UsageError: faiss isn't installed.
    """
    faiss = load_faiss()
    found = faiss.get_num_gpus() if hasattr(faiss, "GpuIndexBinaryFlat") else 0
    device = None if wanted is None or not found else wanted if wanted < found else 0
    asked = "" if wanted is None else f" (GPU {wanted} is asked for, {found} can be used)"
    logger.info("faiss searches on %s%s", "the CPU" if device is None else f"GPU {device}", asked)
    return device
