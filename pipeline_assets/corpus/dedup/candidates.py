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

from pipeline_assets.corpus.dedup import steps
from pipeline_assets.corpus.dedup.recipe import BinarySketchRecipe, NearRecipe
from pipeline_assets.corpus.dedup.sketches import BANDS, BITS, HASHES
from pipeline_assets.corpus.formats.arrow_columns import numbers, to_array, to_table
from pipeline_assets.spine.errors import UsageError, bare
from pipeline_assets.spine.install_hints import install_hint
from pipeline_assets.spine.stage import Task, Window, grouped_by_size
from pipeline_assets.spine.staging import WORK, OutputFile, Receipt, StagingView

_EXACT, _PAIRS = f"{WORK}/exact", f"{WORK}/pairs"
MAX_PAIRS = 1 << 21  # in a run: 32 MiB, and as much again three times while they are sorted
_COPIES = f"{WORK}/copies.set"
_HASH_BYTES, _BAND_BYTES = 250, 120  # of memory for a row: as read, as sorted, as written
_SEEN_ROWS = 4  # as they are read, take no more than one that is sorted and paired
logger = logging.getLogger("corpusmill")


@dataclass(frozen=True)
class ExactCopies:
    """Exact copies of a corpus, in runs of `find_copies` and as a set in a file; none where they aren't looked for."""

    runs: steps.Runs = ()
    copies: Path | None = None


def find_exact(dedup: steps.DedupRun, sketched: Sequence[Receipt]) -> ExactCopies:
    """All exact copies, out of the sketches of the corpus."""
    seen = tuple(store.hashes for store in dedup.seen)
    hashes = _even_ranges(dedup, dedup.runs(sketched, HASHES), seen, _HASH_BYTES)
    found = dedup.runs(dedup.run("exact", (Task.for_kernel(find_copies, one, seen) for one in hashes)))
    return ExactCopies(found, steps.save(dedup.documents_in(found, "number"), dedup.building.path(_COPIES)))


def _even_ranges(
    dedup: steps.DedupRun, runs: steps.Runs, seen: Sequence[steps.SeenRuns], row_bytes: int
) -> list[steps.KeyRange]:
    """Ranges that fit into memory. What was seen is read with them, and most of it left out at once."""
    rows = steps.total_rows(runs) + steps.total_rows(path for runs in seen for path in runs.paths) // _SEEN_ROWS
    return steps.even_ranges(runs, rows, dedup.share_bytes // row_bytes)


def find_copies(hashes: steps.KeyRange, seen: Sequence[steps.SeenRuns], window: Window, folder: StagingView) -> Receipt:
    """The exact copies in a range of hashes, of documents seen before too.

    Files: a run by `number` of the copy; `first`, `first_id`: the order and id of the document that stays. Counts:
    `copies`.
    """
    table = steps.with_seen(hashes, seen)
    high, low, order = (numbers(table[name]) for name in ("high", "low", "order"))
    by = np.lexsort((order, low, high))
    is_original = steps.is_first(high[by], low[by])
    firsts = np.maximum.accumulate(np.where(is_original, np.arange(len(by)), 0))
    copies = np.flatnonzero(~is_original & ~steps.is_from_seen_corpus(order[by]))
    first_rows, copy_numbers = by[firsts[copies]], steps.document_numbers(order[by[copies]])
    by_number = np.argsort(copy_numbers)
    first_rows = first_rows[by_number]
    run = to_table(
        {
            "number": copy_numbers[by_number],
            "first": order[first_rows],
            "first_id": table["doc_id"].take(to_array(first_rows)),
        }
    )
    return Receipt([steps.write_run(folder, f"{_EXACT}/{hashes.name}.parquet", run)], {"copies": len(copies)})


def propose(
    dedup: steps.DedupRun, sketched: Sequence[Receipt], recipe: NearRecipe, exact: ExactCopies
) -> list[Receipt]:
    """Receipts of `propose_pairs`, or of `propose_neighbours`, for the whole corpus, out of its sketches."""
    if recipe.faiss is not None:
        tasks = _to_neighbours(dedup, dedup.runs(sketched, BITS), recipe.faiss, recipe.max_compared, exact)
    else:
        seen = tuple(store.bands for store in dedup.seen)
        bands = _even_ranges(dedup, dedup.runs(sketched, BANDS), seen, _BAND_BYTES)
        tasks = [Task.for_kernel(propose_pairs, one, seen, exact.copies, recipe.max_compared) for one in bands]
    return dedup.run("propose", tasks)


def propose_pairs(
    bands: steps.KeyRange,
    seen: Sequence[steps.SeenRuns],
    copies: Path | None,
    max_compared: int,
    window: Window,
    folder: StagingView,
) -> Receipt:
    """Every two documents that share a band of the range; in a large bucket, each with its first ones alone. Not two
    that were seen before.

    Files: runs by `later`, the order of the later of two, and `earlier`; a pair may be in several.
    Counts: `buckets` of two documents or more, `capped_buckets`, `proposed` pairs, one for each band.

    Args:
        copies: the set of exact copies, which left before; None where none were looked for.
        max_compared: as in the recipe.
    """
    table = steps.with_seen(bands, seen)
    keys, orders = numbers(table["key"]), numbers(table["order"])
    stays = _are_still_there(orders, copies)
    keys, orders = steps.sorted_pairs(keys[stays], orders[stays])
    is_new = steps.is_first(keys)
    places = np.arange(len(keys))
    starts = np.maximum.accumulate(np.where(is_new, places, 0))
    compared = np.where(steps.is_from_seen_corpus(orders), 0, np.minimum(places - starts, max_compared))
    files: list[OutputFile] = []
    for first, stop in _chunks(compared):
        own, many = orders[first:stop], compared[first:stop]
        others = np.repeat(starts[first:stop] - np.cumsum(many) + many, many)  # each has the first ones of its bucket
        pairs = np.stack((np.repeat(own, many), orders[others + np.arange(len(others))]))
        files.append(_write_pairs(folder, f"{bands.name}-{len(files):05d}", pairs))
    sizes = np.diff(np.append(np.flatnonzero(is_new), len(keys)))
    capped = np.flatnonzero(sizes > max_compared + 1)
    return Receipt(
        files, {"buckets": int((sizes > 1).sum()), "capped_buckets": len(capped), "proposed": int(compared.sum())}
    )


def _are_still_there(orders: NDArray[np.uint64], copies: Path | None) -> NDArray[np.bool_]:
    """Which documents are not in the set of exact copies."""
    return np.ones(len(orders), bool) if copies is None else ~steps.bitmap_contains(orders, steps.load(copies))


def _write_pairs(folder: StagingView, name: str, pairs: NDArray[np.uint64]) -> OutputFile:
    later, earlier = steps.distinct_pairs(pairs)
    return steps.write_run(folder, f"{_PAIRS}/{name}.parquet", to_table({"later": later, "earlier": earlier}))


def _chunks(compared: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Spans of rows with about `MAX_PAIRS` pairs each."""
    before = np.cumsum(compared)
    cuts = np.searchsorted(before, np.arange(MAX_PAIRS, before[-1:].sum(), MAX_PAIRS)) + 1
    return list(itertools.pairwise([0, *np.unique(np.append(cuts, len(compared))).tolist()]))


BLOCK_DOCUMENTS = 1 << 16
_QUERIES = 128  # at a time: as many answers as all of them against a block take 100 MiB
_NEAREST = 1024  # a GPU finds so many, not all within a distance


class _Sketches(NamedTuple):
    """Documents in order: orders, uint64; sketches, uint8 of shape (documents, bytes); their sources as numbers."""

    orders: NDArray[np.uint64]
    bits: NDArray[np.uint8]
    sources: NDArray[np.int64]


def _to_neighbours(
    dedup: steps.DedupRun, runs: steps.Runs, recipe: BinarySketchRecipe, max_compared: int, exact: ExactCopies
) -> list[Task]:
    """Blocks of documents, each with all those before it."""
    seen_ranges = (steps.ranges(runs, BLOCK_DOCUMENTS, first) for runs, first in (one.sketches for one in dedup.seen))
    seen = itertools.chain.from_iterable(seen_ranges)
    own = steps.ranges(runs, max(min(BLOCK_DOCUMENTS, steps.total_rows(runs) // steps.parts(dedup.settings)), 1))
    sources = None
    if dedup.recipe.scope == "per-source":
        sources = [span for store in dedup.seen for span in store.sources]
        sources += [(shard.first_number, shard.source) for shard in dedup.shards]
    device = select_faiss_device(dedup.settings.faiss_gpu)
    rules = (exact.copies, sources, recipe, max_compared, device)
    return [
        Task.for_kernel(propose_neighbours, block, (*seen, *own[:number]), *rules) for number, block in enumerate(own)
    ]


def propose_neighbours(
    block: steps.KeyRange,
    before: Sequence[steps.KeyRange],
    copies: Path | None,
    sources: Sequence[tuple[int, str]] | None,
    recipe: BinarySketchRecipe,
    max_compared: int,
    device: int | None,
    window: Window,
    folder: StagingView,
) -> Receipt:
    """Each document of the block with the first `max_compared` of those before it that are near enough, in each block.

    Files: runs of pairs, as `propose_pairs` writes them. Counts: `proposed` pairs.

    Args:
        before: blocks of all documents before these, in order.
        copies, max_compared: as `propose_pairs` takes them.
        sources: (number of the first document, source) of every span of one source; None where documents of any two
            are compared.
        device: the GPU that searches; None for the CPU.
    """
    load_faiss().omp_set_num_threads(1)
    queries = _read_sketches(block, copies, sources, recipe)
    others = (_read_sketches(one, copies, sources, recipe) for one in before)
    bases = itertools.chain(others, [queries])
    found = (near for base in bases for near in _near_pairs(queries, base, recipe, max_compared, device))
    files: list[OutputFile] = []
    proposed = 0
    none = np.empty((2, 0), np.uint64)
    for group in grouped_by_size(itertools.chain([none], found), lambda near: near.shape[1], MAX_PAIRS):
        pairs = np.concatenate(group, axis=1)
        proposed += pairs.shape[1]
        files.append(_write_pairs(folder, f"{block.name}-{len(files):05d}", pairs))
    return Receipt(files, {"proposed": proposed})


def _read_sketches(
    block: steps.KeyRange, copies: Path | None, sources: Sequence[tuple[int, str]] | None, recipe: BinarySketchRecipe
) -> _Sketches:
    table = block.table().combine_chunks()
    orders = numbers(table["order"])
    bits = np.frombuffer(b"".join(table["sketch"].to_pylist()), np.uint8).reshape(len(orders), recipe.bits // 8)
    by = np.argsort(orders)
    by = by[_are_still_there(orders[by], copies)]
    orders = orders[by]
    return _Sketches(orders, bits[by], _document_sources(steps.document_numbers(orders), sources))


def _document_sources(documents: NDArray[np.uint64], spans: Sequence[tuple[int, str]] | None) -> NDArray[np.int64]:
    if spans is None:
        return np.zeros(len(documents), np.int64)
    firsts, names = zip(*spans, strict=True)
    _, codes = np.unique(names, return_inverse=True)
    found: NDArray[np.int64] = codes[np.searchsorted(np.array(firsts, np.uint64), documents, side="right") - 1]
    return found


def _near_pairs(
    queries: _Sketches, base: _Sketches, recipe: BinarySketchRecipe, max_compared: int, device: int | None
) -> Iterator[NDArray[np.uint64]]:
    """Later and earlier of near ones, source by source, some queries at a time; shape (2, pairs)."""
    for source in np.intersect1d(queries.sources, base.sources).tolist():
        own, others = (part.orders[part.sources == source] for part in (queries, base))
        bits = queries.bits[queries.sources == source]
        index = _Index(base.bits[base.sources == source], recipe, device)
        for start in range(0, len(own), _QUERIES):
            asked = own[start : start + _QUERIES]
            query, place = index.near(bits[start : start + _QUERIES])
            is_before = others[place] < asked[query]
            query, place = query[is_before], place[is_before]
            rank = np.arange(len(query)) - np.searchsorted(query, query)
            first_ones = rank <= max_compared  # one more than are compared tells that there were more
            yield np.stack([asked[query[first_ones]], others[place[first_ones]]])


class _Index:
    """All sketches of a block, on the device that searches."""

    def __init__(self, bits: NDArray[np.uint8], recipe: BinarySketchRecipe, device: int | None) -> None:
        faiss: Any = load_faiss()
        self._max_distance = recipe.max_distance
        self._all = faiss.IndexBinaryFlat(recipe.bits)
        self._all.add(np.ascontiguousarray(bits))
        self._gpu: Any = None
        if device is not None:
            config = faiss.GpuIndexBinaryFlatConfig()
            config.device = device
            self._gpu = faiss.GpuIndexBinaryFlat(faiss.StandardGpuResources(), self._all, config)

    def near(self, queries: NDArray[np.uint8]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(query, place in the block) of all near ones, by both."""
        if self._gpu is None:
            query, place = self._within(queries)
        else:
            nearest = min(_NEAREST, self._all.ntotal)
            distances, places = self._gpu.search(queries, nearest)
            is_near = distances <= self._max_distance
            is_cut = is_near[:, -1] & (nearest < self._all.ntotal)  # there may be more of them than were asked for
            query, column = np.nonzero(is_near & ~is_cut[:, None])
            cut_query, cut_place = self._within(queries[is_cut])
            place = np.concatenate([places[query, column], cut_place])
            query = np.concatenate([query, np.flatnonzero(is_cut)[cut_query]])
        by = np.lexsort((place, query))
        return query[by], place[by]

    def _within(self, queries: NDArray[np.uint8]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        limits, _, places = self._all.range_search(np.ascontiguousarray(queries), self._max_distance + 1)
        return np.repeat(np.arange(len(queries)), np.diff(limits.astype(np.int64))), places


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


def select_faiss_device(wanted: int | None) -> int | None:
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
