"""The stage `propose` by faiss: documents whose binary sketches differ in few bits → pairs to be compared.

A bit of a sketch is one of a mixed number of a MinHash signature (b-bit minwise hashing with b = 1; Li and König
2010, arXiv 0910.3349): of two documents it is equal with a probability of (1 + s) / 2, where s is their Jaccard
similarity. The search is exhaustive, so what is proposed depends on the sketches alone, whatever device searches.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline_assets.corpus.dedup.candidates import MAX_PAIRS, PAIRS, distinct_pairs
from pipeline_assets.corpus.dedup.order import are_members, document_numbers, load
from pipeline_assets.corpus.dedup.recipe import BinarySketchRecipe
from pipeline_assets.corpus.dedup.sorted_runs import read_range, write_run
from pipeline_assets.corpus.formats.arrow import numbers
from pipeline_assets.corpus.spine.building import BuildFolder, OutputFile, Receipt
from pipeline_assets.corpus.spine.errors import UsageError, bare, install_hint
from pipeline_assets.corpus.spine.stage import Window

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
    queries = _read(shard.queries, shard)
    files: list[OutputFile] = []
    pending: list[tuple[NDArray[np.uint64], NDArray[np.uint64]]] = []
    proposed = waiting = 0
    for block in shard.before:
        base = queries if block == shard.queries else _read(block, shard)
        for later, earlier in _pairs(faiss, queries, base, shard):
            pending.append((later, earlier))
            waiting += len(later)
            proposed += len(later)
            if waiting >= MAX_PAIRS:
                files.append(_write(pending, shard, folder, len(files)))
                pending, waiting = [], 0
    files.append(_write(pending, shard, folder, len(files)))
    return Receipt(files, {"proposed": proposed})


def _read(block: Block, shard: NeighbourRange) -> _Sketches:
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
    return write_run(folder.path(name), name, pa.table({"later": later, "earlier": earlier}))


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
