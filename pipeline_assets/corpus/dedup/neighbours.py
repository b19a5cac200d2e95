"""Pairs found with faiss: documents whose binary sketches differ in few bits.

A sketch has one bit for each number of a MinHash signature: the lowest bit of the number after mixing (b-bit minwise
hashing with b = 1; Li and König 2010, arXiv 0910.3349). Each bit is equal in two documents with probability
(1 + s) / 2, where s is their Jaccard similarity. The search is exhaustive, so the device does not change the pairs.
Each task handles one block of documents: a range of priorities.
"""

import itertools
import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline_assets.corpus.dedup.bitmap import bitmap_contains, load_bitmap
from pipeline_assets.corpus.dedup.dedup_run import DedupRun, min_tasks
from pipeline_assets.corpus.dedup.document_order import document_numbers
from pipeline_assets.corpus.dedup.exact_copies import ExactCopies
from pipeline_assets.corpus.dedup.recipe import BinarySketchRecipe
from pipeline_assets.corpus.dedup.signature_store import SeenRuns
from pipeline_assets.corpus.dedup.sorted_runs import RUN_PAIRS, KeyRange, Runs, divide_keys, write_pairs
from pipeline_assets.corpus.formats.arrow_columns import to_numpy
from pipeline_assets.spine.errors import RecipeKey, UsageError
from pipeline_assets.spine.install_hints import install_hint
from pipeline_assets.spine.stage import Window, group_by_size
from pipeline_assets.spine.staging import OutputFile, Receipt, StagingView
from pipeline_assets.spine.task import Task

logger = logging.getLogger("corpusmill")

BLOCK_DOCUMENTS = 1 << 16
_BATCH_QUERIES = 128  # queries in one search: if all match a whole block, the results take 100 MiB
_GPU_NEIGHBOURS = 1024  # a GPU search returns this many nearest sketches, not all within a distance


class _Sketches(NamedTuple):
    """Binary sketches of the documents of a block, in the order of their priorities.

    Attributes:
        priorities: Priorities, shape (documents,).
        bits: Sketches, shape (documents, bytes).
        source_codes: Code of each document's source, shape (documents,). A source has the same code in all blocks.
    """

    priorities: NDArray[np.uint64]
    bits: NDArray[np.uint8]
    source_codes: NDArray[np.int64]


def neighbour_tasks(
    dedup: DedupRun, runs: Runs, recipe: BinarySketchRecipe, max_compared: int, exact_copies: ExactCopies
) -> list[Task]:
    """Return a task of `propose_neighbours` for each block of documents in `runs`."""
    seen_runs = tuple(store.sketches for store in dedup.seen_stores)
    rows = sum(run.rows for run in runs)
    blocks = divide_keys(dedup.staging, runs, max(min(BLOCK_DOCUMENTS, rows // min_tasks(dedup.settings)), 1))
    source_starts = [(0, "all sources")]
    if dedup.recipe.scope == "per-source":
        source_starts = [span for store in dedup.seen_stores for span in store.source_starts]
        by_source = itertools.groupby(dedup.shards, lambda shard: shard.source)
        source_starts += [(next(shards).first_number, source) for source, shards in by_source]
    device = select_faiss_device(dedup.settings.faiss_gpu)
    common = (exact_copies.bitmap_file, source_starts, recipe, max_compared, device)
    return [Task.bind(propose_neighbours, block, seen_runs, *common) for block in blocks]


def propose_neighbours(
    block: KeyRange,
    seen_runs: Sequence[SeenRuns],
    copies_file: Path,
    source_starts: Sequence[tuple[int, str]],
    recipe: BinarySketchRecipe,
    max_compared: int,
    device: int | None,
    window: Window,
    folder: StagingView,
) -> Receipt:
    """Pair each document of a block with earlier documents whose sketches are near.

    Sketches are near if at most `recipe.max_distance` bits differ. The task searches each table of `seen_runs`, each
    earlier block, and the block itself. Each search pairs a document with at most `max_compared` + 1 near documents.
    `verify_pairs` compares only `max_compared` pairs per document; the extra pair shows that a document has more pairs.
    Documents in the bitmap file `copies_file` are skipped.

    `source_starts` divides all documents into spans of one source each: an entry has the first document number of a
    span, and its source. Only documents of the same source are paired; in the scope `global`, one span has all
    documents. `device` is the index of a GPU, or None for the CPU.

    The files are runs of pairs, as in `propose_band_pairs`. The receipt counts the pairs as `proposed`.
    """
    load_faiss().omp_set_num_threads(1)
    queries = _read_sketches(block.table(), copies_file, source_starts, recipe)

    def near_pairs() -> Iterator[NDArray[np.uint64]]:
        yield np.empty((2, 0), np.uint64)  # so that at least one run is written
        seen = (table for runs in seen_runs for table in runs.tables())
        earlier = (replace(block, range_number=number).table() for number in range(block.range_number))
        for table in itertools.chain(seen, earlier):
            candidates = _read_sketches(table, copies_file, source_starts, recipe)
            yield from _find_near_pairs(queries, candidates, recipe, max_compared, device)
        yield from _find_near_pairs(queries, queries, recipe, max_compared, device)

    files: list[OutputFile] = []
    proposed = 0
    for group in group_by_size(near_pairs(), lambda near: near.shape[1], RUN_PAIRS):
        pairs = np.concatenate(group, axis=1)
        proposed += pairs.shape[1]
        files.append(write_pairs(folder, f"{block.name}-{len(files):05d}", pairs))
    return Receipt(files, {"proposed": proposed})


def _read_sketches(
    table: pa.Table, copies_file: Path, source_starts: Sequence[tuple[int, str]], recipe: BinarySketchRecipe
) -> _Sketches:
    table = table.combine_chunks()
    priorities = to_numpy(table["order"])
    bits = np.frombuffer(b"".join(table["sketch"].to_pylist()), np.uint8).reshape(len(priorities), recipe.bits // 8)
    sorted_rows = np.argsort(priorities)
    sorted_rows = sorted_rows[~bitmap_contains(priorities[sorted_rows], load_bitmap(copies_file))]
    priorities = priorities[sorted_rows]
    firsts, names = zip(*source_starts, strict=True)
    _, codes = np.unique(names, return_inverse=True)
    # A document is of the last source that begins at or before it.
    spans = np.searchsorted(np.array(firsts, np.uint64), document_numbers(priorities), side="right") - 1
    return _Sketches(priorities, bits[sorted_rows], codes[spans])


def _find_near_pairs(
    queries: _Sketches, candidates: _Sketches, recipe: BinarySketchRecipe, max_compared: int, device: int | None
) -> Iterator[NDArray[np.uint64]]:
    """Yield arrays of near pairs, shape (2, pairs): the priorities of two documents.

    Row 0 has documents of `queries`; row 1 has near documents of `candidates` that precede them. A document of
    `queries` is paired with at most the first `max_compared` + 1 of its near documents.
    """
    for code in np.intersect1d(queries.source_codes, candidates.source_codes).tolist():
        later_priorities = queries.priorities[queries.source_codes == code]
        earlier_priorities = candidates.priorities[candidates.source_codes == code]
        bits = queries.bits[queries.source_codes == code]
        index = _SketchIndex(candidates.bits[candidates.source_codes == code], recipe, device)
        for start in range(0, len(later_priorities), _BATCH_QUERIES):
            later = later_priorities[start : start + _BATCH_QUERIES]
            query, neighbour = index.find_near(bits[start : start + _BATCH_QUERIES])
            is_before = earlier_priorities[neighbour] < later[query]
            query, neighbour = query[is_before], neighbour[is_before]
            # Rank of each result among its query's results: `query` ascends, so the search finds where they begin.
            rank = np.arange(len(query)) - np.searchsorted(query, query)
            is_proposed = rank <= max_compared  # one more than `verify_pairs` compares, which counts capped documents
            yield np.stack([later[query[is_proposed]], earlier_priorities[neighbour[is_proposed]]])


class _SketchIndex:
    """Search index of sketches, on a GPU or the CPU."""

    def __init__(self, bits: NDArray[np.uint8], recipe: BinarySketchRecipe, device: int | None) -> None:
        faiss: Any = load_faiss()
        self._max_distance = recipe.max_distance
        self._cpu_index = faiss.IndexBinaryFlat(recipe.bits)
        self._cpu_index.add(np.ascontiguousarray(bits))
        self._gpu_index: Any = None
        if device is not None:
            config = faiss.GpuIndexBinaryFlatConfig()
            config.device = device
            self._gpu_index = faiss.GpuIndexBinaryFlat(faiss.StandardGpuResources(), self._cpu_index, config)

    def find_near(self, queries: NDArray[np.uint8]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the pairs of near sketches, as two arrays of indices.

        The first array has indices in `queries`, which has the shape (queries, bytes). The second has indices of
        sketches in this index. Both arrays have the shape (pairs,) and are sorted by query, then by sketch.
        """
        if self._gpu_index is None:
            query, neighbour = self._search_exhaustively(queries)
        else:
            nearest = min(_GPU_NEIGHBOURS, self._cpu_index.ntotal)
            distances, neighbours = self._gpu_index.search(queries, nearest)
            is_near = distances <= self._max_distance
            # If even the farthest returned sketch is near, near ones may be missing: search this query on the CPU.
            is_cut = is_near[:, -1] & (nearest < self._cpu_index.ntotal)
            query, column = np.nonzero(is_near & ~is_cut[:, None])
            cut_query, cut_neighbour = self._search_exhaustively(queries[is_cut])
            neighbour = np.concatenate([neighbours[query, column], cut_neighbour])
            query = np.concatenate([query, np.flatnonzero(is_cut)[cut_query]])
        order = np.lexsort((neighbour, query))
        return query[order], neighbour[order]

    def _search_exhaustively(self, queries: NDArray[np.uint8]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        # faiss excludes the radius itself, so it is one more. `limits` are the offsets of each query's results.
        limits, _, neighbours = self._cpu_index.range_search(np.ascontiguousarray(queries), self._max_distance + 1)
        return np.repeat(np.arange(len(queries)), np.diff(limits.astype(np.int64))), neighbours


def load_faiss(recipe_key: str = "dedup.near.faiss") -> ModuleType:
    """Import faiss; if it is not installed, raise UsageError about `recipe_key`."""
    try:
        import faiss
    except ImportError:
        fix = f"{install_hint('faiss')}, or use minhash"
        raise UsageError("faiss is not installed", RecipeKey(recipe_key), fix) from None
    module: ModuleType = faiss
    return module


def select_faiss_device(requested_gpu: int | None) -> int | None:
    """Choose and log the device for searches; return a GPU's index, or None (CPU).

    Choose the CPU if `requested_gpu` is None or no GPU is usable. Choose GPU 0 if the requested GPU does not exist.
    """
    faiss = load_faiss()
    gpus = faiss.get_num_gpus() if hasattr(faiss, "GpuIndexBinaryFlat") else 0
    device = None if requested_gpu is None or not gpus else requested_gpu if requested_gpu < gpus else 0
    choice = "" if requested_gpu is None else f" (GPU {requested_gpu} requested, {gpus} available)"
    logger.info("faiss searches on %s%s", "the CPU" if device is None else f"GPU {device}", choice)
    return device
